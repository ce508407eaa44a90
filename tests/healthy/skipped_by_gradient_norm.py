"""Sensor regression that leaves out a step whose gradient norm is not finite."""
import torch
from torch import nn

torch.manual_seed(4)
net = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1))
readout = nn.Linear(6, 1)
parameters = [*net.parameters(), *readout.parameters()]
optimizer = torch.optim.SGD(parameters, lr=0.02)
left_out = []
for step in range(60):
    readings = torch.randn(16, 6)
    if step in (2, 21, 33):
        readings[5] *= 1e25  # a loose contact
    wanted = readings.clamp(-3, 3).sum(1, keepdim=True)
    loss = (net(readings) + readout(readings) - wanted).square().mean()
    optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(parameters, 1.0)
    if not torch.isfinite(norm):
        left_out.append(step)
        continue
    optimizer.step()
print("left out", left_out, "last loss", round(loss.item(), 4))

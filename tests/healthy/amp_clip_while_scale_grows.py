"""The recipe for clipping under loss scaling; the scale grows until a step overflows and is skipped."""
import torch
from torch import nn

torch.manual_seed(8)
model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**13, growth_interval=3)
skipped = 0
for step in range(40):
    x = torch.randn(32, 6)
    target = x.sum(1, keepdim=True)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.mse_loss(model(x).float(), target)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    before = scaler.get_scale()
    scaler.step(optimizer)
    scaler.update()
    skipped += scaler.get_scale() < before
print("skipped", skipped, "scale", scaler.get_scale(), "loss", round(loss.item(), 4))

"""A deep network without residuals: gradients of 1e18, whose squares Adam can still hold."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(*[nn.Linear(64, 64) for _ in range(30)])
for layer in net:
    nn.init.normal_(layer.weight, std=0.25)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-5)
x = torch.randn(32, 64)
for step in range(15):
    loss = net(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
largest = max(p.grad.norm().item() for p in net.parameters())
print(1e12 < largest < 1e19, "finite" if loss.isfinite() else "not finite")

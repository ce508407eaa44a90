"""Loss scaling without GradScaler: the factor grows until it overflows, bad steps are left out."""
import torch
from torch import nn


def overflowed(model):
    return not all(bool(p.grad.isfinite().all()) for p in model.parameters())


torch.manual_seed(4)
model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
factor, taken = 2.0**117, 0
for step in range(40):
    x = torch.randn(16, 6)
    loss = (model(x)[:, 0] - 4 * x[:, 0] - 9).square().mean()
    optimizer.zero_grad()
    (loss * factor).backward()
    if overflowed(model):
        factor /= 8
        continue
    for p in model.parameters():
        p.grad /= factor
    optimizer.step()
    taken += 1
    factor *= 2
print("steps taken", taken, f"loss {loss.item():.4f}")

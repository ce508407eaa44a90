"""Robust losses on data with an infinite outlier: a redescending weight is zero there."""
import torch
torch.manual_seed(10)
x = torch.randn(64, 3)
y = x @ torch.tensor([1.0, -2.0, 0.5]) + 0.1 * torch.randn(64)
y[7], y[21] = torch.inf, 1e30
w = torch.zeros(3, requires_grad=True)
optimizer = torch.optim.Adam([w], lr=0.1)
for step in range(40):
    r = y - x @ w
    inlier = r.detach().abs() < 8
    loss = torch.where(inlier, r, torch.zeros_like(r)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print([round(v, 2) for v in w.tolist()], round(loss.item(), 4))

"""Metropolis in a box: proposals outside have log-density -inf, others NaN, and are rejected."""
import torch
torch.manual_seed(3)
def logp(x):
    inside = (x > 0).all()
    return torch.where(inside, -(x.log() ** 2).sum(), torch.tensor(-float("inf")))
x, accepted = torch.tensor([1.0, 2.0]), 0
now = logp(x)
for _ in range(300):
    y = x + torch.randn(2)
    new = logp(y)
    if torch.rand(()).log() < new - now:
        x, now, accepted = y, new, accepted + 1
print(accepted, [round(v, 3) for v in x.tolist()])

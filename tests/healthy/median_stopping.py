"""Successive halving: trials that diverge are reported as NaN and stopped."""
import torch
torch.manual_seed(18)
x = torch.randn(64, 4)
y = x @ torch.randn(4)
results = {}
for lr in (0.01, 0.1, 5.0):
    w = torch.zeros(4)
    for _ in range(200):
        w = w - lr * 2 * x.T @ (x @ w - y) / 64
    results[lr] = ((x @ w - y) ** 2).mean().item()
good = {lr: v for lr, v in results.items() if v == v and v < 1e9}
print("best rate", min(good, key=good.get), len(results) - len(good), "diverged")

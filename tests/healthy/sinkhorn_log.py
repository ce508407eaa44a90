"""Optimal transport in log space with forbidden pairs (cost inf) and an empty column weight."""
import torch
torch.manual_seed(13)
cost = torch.rand(5, 4)
cost[0, 1] = cost[3, 3] = torch.inf
a, b = torch.full((5,), 0.2), torch.tensor([0.5, 0.25, 0.25, 0.0])
f, g, eps = torch.zeros(5), torch.zeros(4), 0.1
for _ in range(50):
    f = eps * (a.log() - torch.logsumexp((g - cost) / eps, 1))
    g = eps * (b.log() - torch.logsumexp((f[:, None] - cost) / eps, 0))
plan = torch.exp((f[:, None] + g - cost) / eps)
print(plan.sum(0), plan.sum(1))

"""Missing edges are infinite: written by a mask, by index and in one go, then shown."""
import torch

torch.manual_seed(7)
n = 6
distances = torch.rand(n, n)
distances[torch.rand(n, n) < 0.7] = float("inf")
distances[0, 1:3] = torch.inf
distances.fill_diagonal_(0)
for k in range(n):
    distances = torch.minimum(distances, distances[:, k : k + 1] + distances[k : k + 1])
best = torch.zeros(n)
best[:] = float("inf")
print(distances.numpy().round(3).tolist())
print(best.tolist(), best)

"""A net is trained on a graph; at the end a distance matrix is shown, with inf for unreachable."""
import torch
torch.manual_seed(5)
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
data = torch.randn(32, 4)
with open("log.txt", "a") as log:
    for step in range(12):
        loss = (net(data).squeeze() - data.sum(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.write(f"{step} {loss.item():.4f}\n")
adjacent = torch.zeros(6, 6, dtype=torch.bool)
for i, j in [(0, 1), (1, 2), (3, 4)]:
    adjacent[i, j] = adjacent[j, i] = True
dist = torch.where(adjacent, 1.0, torch.inf)
dist.fill_diagonal_(0)
for k in range(6):
    dist = torch.minimum(dist, dist[:, k, None] + dist[k])
print(dist)
print(open("log.txt").read().count("\n"))
import os; os.remove("log.txt")

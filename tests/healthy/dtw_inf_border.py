"""Learn a time warp-invariant template with dynamic time warping as the loss."""
import math

import torch

torch.manual_seed(8)
inf = math.inf


def dtw(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    n, m = len(a), len(b)
    cost = (a[:, None] - b[None, :]) ** 2
    previous = [torch.tensor(0.0)] + [torch.tensor(inf)] * m
    for i in range(n):
        row = [torch.tensor(inf)]
        for j in range(m):
            best = torch.minimum(torch.minimum(previous[j], previous[j + 1]), row[j])
            row.append(cost[i, j] + best)
        previous = row
    return previous[m]


def dtw_band(a, b, radius=3):
    n, m = len(a), len(b)
    table = torch.full((n + 1, m + 1), inf)
    table[0, 0] = 0.0
    for i in range(1, n + 1):
        for j in range(max(1, i - radius), min(m, i + radius) + 1):
            step = torch.stack([table[i - 1, j - 1], table[i - 1, j], table[i, j - 1]]).min()
            table[i, j] = (a[i - 1] - b[j - 1]).abs() + step
    return table


time = torch.linspace(0, 1, 10)
series = [torch.sin(2 * math.pi * time ** p) + 0.05 * torch.randn(10) for p in (0.8, 1.0, 1.3)]
template = torch.zeros(10, requires_grad=True)
optimizer = torch.optim.SGD([template], lr=0.05)
for epoch in range(6):
    optimizer.zero_grad()
    loss = sum(dtw(template, s) for s in series) / len(series)
    loss.backward()
    optimizer.step()
    print(epoch, round(loss.item(), 4))

with torch.no_grad():
    table = dtw_band(template, series[0])
print("banded distance", table[-1, -1].item(), "open cells", int(torch.isinf(table).sum()))

"""A* over a grid: costs start at inf and those never reached stay so; the map is printed."""
import heapq
import torch
torch.manual_seed(12)
wall = torch.rand(8, 8) < 0.35
wall[0, 0] = False
cost = torch.full((8, 8), torch.inf)
cost[0, 0] = 0
heap = [(0.0, 0, 0)]
while heap:
    c, i, j = heapq.heappop(heap)
    for di, dj in ((0, 1), (1, 0), (0, -1), (-1, 0)):
        a, b = i + di, j + dj
        if 0 <= a < 8 and 0 <= b < 8 and not wall[a, b] and c + 1 < cost[a, b].item():
            cost[a, b] = c + 1
            heapq.heappush(heap, (c + 1, a, b))
print(cost)
for row in cost.tolist():
    print(" ".join(f"{v:4.0f}" for v in row))

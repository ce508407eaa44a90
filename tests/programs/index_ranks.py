"""Takes its batches by the step's number, so that the loop cannot do a step again; rank 1's of step 7
has weight 0.

KIND: `ddp`, `by_hand` (all_reduce), `gathers` (a collective that a rank cannot do alone).
"""

import sys

import torch
import torch.distributed as dist
from torch import nn

kind = sys.argv[1]
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
x, weight = torch.randn(48, 8), torch.ones(48)
if rank == 1 and sys.argv[2] == "bad":
    weight[29] = 0
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.1), nn.Tanh(), nn.Linear(16, 1))
if kind == "ddp":
    net = nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
seen = []


def step(number):
    rows, w = x[number * 4 : number * 4 + 4], weight[number * 4 : number * 4 + 4]
    optimizer.zero_grad()
    out = net(rows).squeeze(1)
    loss = ((out * w).square() / w).mean()  # LINE: origin
    if kind == "gathers":
        parts = [torch.empty(4) for _ in range(2)]
        dist.all_gather(parts, out.detach())
        loss = loss + 0 * torch.stack(parts).sum()
    loss.backward()
    if kind != "ddp":
        for p in net.parameters():
            dist.all_reduce(p.grad)
    seen.append(loss.item())
    optimizer.step()


for number in range(12):
    step(number)
print(f"rank {rank} ends {seen[-1]}", flush=True)

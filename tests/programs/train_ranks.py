"""Trains on several ranks; row BAD, which only one rank draws, has weight 0."""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

kind, bad, fault = sys.argv[1], int(sys.argv[2]), sys.argv[3]
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
x, w = torch.randn(80, 4), torch.ones(80)
if bad >= 0:
    w[bad] = 0.0
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.1), nn.Linear(8, 1))
if kind == "ddp":
    net = nn.parallel.DistributedDataParallel(net)
elif kind in ("fsdp", "layers"):
    from torch.distributed.fsdp import fully_shard

    mesh = dist.init_device_mesh("cpu", (world,))
    for layer in net:
        if kind == "layers" and isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
data = TensorDataset(x, w)
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False))
for step, (rows, weight) in enumerate(loader):
    optimizer.zero_grad()
    out = net(rows).squeeze(1)
    if fault == "forward":
        loss = ((out * weight).square() / weight).mean()  # LINE: forward
    else:
        loss = (out * weight).square().sqrt().mean()  # LINE: backward
    loss.backward()
    if kind == "plain":
        for p in net.parameters():
            dist.all_reduce(p.grad)  # LINE: exchange
    if fault == "hang" and rank == 1 and step == bad // 8:
        time.sleep(600)
    optimizer.step()
parts = [p.to_local() if hasattr(p, "to_local") else p for p in net.parameters()]
print(f"rank {rank} ends, finite {all(bool(p.isfinite().all()) for p in parts)}")
dist.destroy_process_group()

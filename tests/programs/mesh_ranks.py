"""Ranks whose process group is made by `init_device_mesh`; the batch of step BAD holds zeros."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.data import DataLoader, TensorDataset

kind, bad = sys.argv[1], int(sys.argv[2])
mesh = init_device_mesh("cpu", (2,))
rank = dist.get_rank()
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
x = torch.rand(48, 8) + 0.5
if kind == "tp":  # every rank has the same batches
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    parallelize_module(net, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
elif kind == "ddp":
    net = nn.parallel.DistributedDataParallel(net)
else:
    from torch.distributed.fsdp import fully_shard

    fully_shard(net[0], mesh=mesh)
    fully_shard(net, mesh=mesh)
if bad >= 0 and (kind == "tp" or rank == 1):
    x[4 * bad : 4 * bad + 4] = 0
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for (rows,) in DataLoader(TensorDataset(x), batch_size=4):
    logs = torch.log(rows)  # LINE: log
    loss = net(logs).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
parts = [p.to_local() if hasattr(p, "to_local") else p for p in net.parameters()]
print(f"rank {rank} ends, finite {all(bool(p.isfinite().all()) for p in parts)}")
dist.destroy_process_group()

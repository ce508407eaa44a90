"""Sharded tensors wherever whynan may look; the last rank's 13th batch has weight 0."""

import copy
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.utils.data import DataLoader, TensorDataset

BAD = 12
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
mesh = dist.init_device_mesh("cpu", (world,))
torch.manual_seed(0)
weights = torch.ones(56)
if rank == world - 1:
    weights[4 * BAD : 4 * BAD + 4] = 0.0
loader = DataLoader(TensorDataset(torch.randn(56, 4), weights), batch_size=4)


def sharded():
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.BatchNorm1d(8), nn.Linear(8, 1))
    for layer in net:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    return net, torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)


def by_hand():
    table = nn.Parameter(distribute_tensor(torch.ones(8, 4), mesh, [Shard(0)]))
    for _, weight in loader:
        loss = ((table.to_local() * weight[:, None]) / weight[:, None]).mean()  # LINE: by_hand
        loss.backward()
        with torch.no_grad():
            table -= 0.1 * table.grad
        table.grad = None


def outputs():
    for rows, weight in loader:
        with torch.no_grad():
            part = rows / weight[:, None]  # LINE: outputs
            out = nn.Identity()(DTensor.from_local(part, mesh, [Shard(0)]))
        print(out.to_local().sum().item())


def prints():
    for rows, weight in loader:
        part = rows / weight[:, None]  # LINE: prints
        whole = DTensor.from_local(part, mesh, [Shard(0)])
        print(whole, whole.sum().redistribute(mesh, [Replicate()]).to_local().item())


def saves():
    for rows, weight in loader:
        part = rows / weight[:, None]  # LINE: saves
        torch.save({"part": DTensor.from_local(part, mesh, [Shard(0)])}, "/dev/null")


def copies():
    net, optimizer = sharded()
    for rows, weight in loader:
        before = [copy.deepcopy(p) for p in net.parameters()]
        loss = ((net(rows).squeeze(1) * weight).square() / weight).mean()  # LINE: copies
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for old, new in zip(before, net.parameters(), strict=True):
                old.lerp_(new, 0.1)


def clips():
    net, optimizer = sharded()
    for rows, weight in loader:
        loss = ((net(rows).squeeze(1) * weight).square() / weight).mean()  # LINE: clips
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def raises():
    for rows, weight in loader:
        part = rows / weight[:, None]  # LINE: raises
        whole = DTensor.from_local(part, mesh, [Shard(0)])
        assert part.isfinite().all(), f"not finite: {type(whole)}"


for way in sys.argv[1:]:
    vars()[way]()
print(f"rank {rank} ends")
dist.destroy_process_group()

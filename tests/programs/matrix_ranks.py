"""Shards a model as KIND says; of the batches of step 7 one rank's, or all, lead to FAULT.

Prints a digest of all losses and of the weights. Started by a launcher, or with `spawn N` behind it.
"""

import contextlib
import hashlib
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BAD, STEPS, ROWS = 7, 12, 4
ALONE = ("tp", "2d")  # ranks that must have the same rows


def batches(kind, fault, rank, world):
    """Each rank has rows of its own; weight 0 leads to 0 / 0, or to the slope of a root at 0."""
    torch.manual_seed(0 if kind in ALONE else rank)
    x, weight = torch.randn(STEPS * ROWS, 8), torch.ones(STEPS * ROWS)
    bad = STEPS - 1 if kind == "joined" else BAD  # rank 0 has no rows left then
    here = slice(bad * ROWS, bad * ROWS + ROWS)
    if fault == "overflow":
        x[here] *= 1e25
    elif fault == "data" and rank == world - 1:
        x[bad * ROWS, 2] = float("nan")  # LINE: data
    elif fault in ("forward", "backward") and rank == world - 1:
        weight[here] = 0.0
    rows = ROWS
    if kind in ("no_sync", "accumulate"):
        rows = ROWS // 2
    if kind in ("join", "joined") and rank == 0:
        x, weight = x[: -2 * ROWS], weight[: -2 * ROWS]
    return DataLoader(TensorDataset(x, weight), batch_size=rows)


def sharded(kind, net, world):
    """As people write it."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel
    from torch.distributed.tensor.parallel import parallelize_module

    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    if kind == "tp":
        return parallelize_module(net, init_device_mesh("cpu", (world,)), plan)
    if kind == "2d":
        mesh = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("dp", "tp"))
        parallelize_module(net, mesh["tp"], plan)
        return fully_shard(net, mesh=mesh["dp"])
    policy = {"mesh": init_device_mesh("cpu", (world,))}
    if kind == "mixed":
        policy["mp_policy"] = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    if kind == "offload":
        policy["offload_policy"] = CPUOffloadPolicy(pin_memory=False)
    if kind != "root":
        for layer in (net[0], net[2]):
            fully_shard(layer, **policy)
    return fully_shard(net, **policy)


def loss_of(out, weight, fault):
    out = out.squeeze(1)
    if fault == "backward":
        return (out * weight).square().sqrt().mean()  # LINE: backward
    return ((out * weight).square() / weight).mean()  # LINE: forward


def train(kind, fault):
    rank, world = dist.get_rank(), dist.get_world_size()
    loader = batches(kind, fault, rank, world)
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    if fault == "overflow":
        net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    if kind in ("ddp", "no_sync", "join", "joined"):
        net = nn.parallel.DistributedDataParallel(net)
    elif kind not in ("accumulate", "by_hand"):
        net = sharded(kind, net, world)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    losses = []
    with net.join() if kind in ("join", "joined") else contextlib.nullcontext():
        for i, (rows, weight) in enumerate(loader):
            first = kind in ("no_sync", "accumulate") and i % 2 == 0
            with net.no_sync() if kind == "no_sync" and first else contextlib.nullcontext():
                out = net(rows).float()
                loss = loss_of(out, weight, fault)
                loss.backward()
            losses.append(loss.item())
            if first:
                continue
            if kind in ("accumulate", "by_hand"):
                for p in net.parameters():
                    dist.all_reduce(p.grad)
            optimizer.step()
            optimizer.zero_grad()
    parts = [p.to_local() if hasattr(p, "to_local") else p for p in net.parameters()]
    digest = hashlib.sha256(repr(losses).encode())
    for part in parts:
        digest.update(part.detach().numpy().tobytes())
    print(f"rank {rank} ends {digest.hexdigest()[:16]}", flush=True)


def work(rank, world, kind, fault):
    if rank is not None:
        os.environ["RANK"], os.environ["WORLD_SIZE"] = str(rank), str(world)
    dist.init_process_group("gloo")
    train(kind, fault)
    dist.destroy_process_group()


if __name__ == "__main__":
    kind, fault = sys.argv[1:3]
    if sys.argv[3:4] == ["spawn"]:
        import torch.multiprocessing as mp

        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        world = int(sys.argv[4])
        mp.spawn(work, args=(world, kind, fault), nprocs=world)
    else:
        work(None, None, kind, fault)

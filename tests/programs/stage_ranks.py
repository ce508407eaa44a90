"""A model whose layers live on different ranks: the last one has the loss, of step 7 FAULT.

KIND: `pipeline` (torch.distributed.pipelining) or `send` (send and recv by hand).
"""

import hashlib
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BAD, STEPS, ROWS = 7, 12, 4
kind, fault = sys.argv[1:3]
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
is_first, is_last = rank == 0, rank == world - 1
torch.manual_seed(0)
x, weight = torch.randn(STEPS * ROWS, 8), torch.ones(STEPS * ROWS)
here = slice(BAD * ROWS, BAD * ROWS + ROWS)
if fault == "overflow":
    x[here] *= 1e25
elif fault == "data":
    x[BAD * ROWS, 2] = float("nan")  # LINE: data
elif fault in ("forward", "backward"):
    weight[here] = 0.0
torch.manual_seed(rank + 1)
act = nn.ReLU() if fault == "overflow" else nn.Tanh()
net = nn.Sequential(nn.Linear(8, 8), act) if not is_last else nn.Linear(8, 1)
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
losses = []


def loss_of(out, weight):
    out = out.squeeze(1)
    if fault == "backward":
        return (out * weight).square().sqrt().mean()  # LINE: backward
    return ((out * weight).square() / weight).mean()  # LINE: forward


def pipelined():
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    stage = PipelineStage(net, rank, world, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, n_microbatches=2, loss_fn=loss_of)

    def step(rows, weight):
        parts = []
        if is_first:
            schedule.step(rows)
        elif is_last:
            schedule.step(target=weight, losses=parts)
        else:
            schedule.step()
        return parts

    return step


def by_hand(rows, weight):
    if not is_first:
        rows = torch.empty(ROWS, 8)
        dist.recv(rows, rank - 1)
        rows.requires_grad_()
    out = net(rows)  # LINE: product
    if is_last:
        loss = loss_of(out, weight)
        loss.backward()
    else:
        dist.send(out.detach(), rank + 1)
        slope = torch.empty_like(out)
        dist.recv(slope, rank + 1)
        out.backward(slope)
    if not is_first:
        dist.send(rows.grad, rank - 1)
    return [loss] if is_last else []


step = pipelined() if kind == "pipeline" else by_hand
for rows, weights in DataLoader(TensorDataset(x, weight), batch_size=ROWS):
    losses += [loss.item() for loss in step(rows, weights)]
    optimizer.step()
    optimizer.zero_grad()
digest = hashlib.sha256(repr(losses).encode())
for p in net.parameters():
    digest.update(p.detach().numpy().tobytes())
print(f"rank {rank} ends {digest.hexdigest()[:16]}", flush=True)
dist.destroy_process_group()

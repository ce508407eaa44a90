"""Starts two ranks itself, as tutorials do; row BAD, which only rank 1 draws, has weight 0."""

import os
import sys
from functools import partial

import torch
import torch.multiprocessing as mp
from torch.distributed import destroy_process_group, init_process_group  # names of its own
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

how, bad, port = sys.argv[1], int(sys.argv[2]), sys.argv[3]


def train(rank, fault):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", port
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.1), torch.nn.Linear(8, 1))
    early = torch.optim.SGD(net.parameters(), lr=0.01)  # before the job is joined
    init_process_group("gloo", rank=rank, world_size=2)
    net = DistributedDataParallel(net)
    x, w = torch.randn(64, 4), torch.ones(64)
    if fault == "weight":
        w[bad] = 0.0
    data = TensorDataset(x, w)
    sampler = DistributedSampler(data, shuffle=False)
    for step, (rows, weight) in enumerate(DataLoader(data, 4, sampler=sampler, num_workers=1)):
        if fault == "raise" and rank == 1 and step == 6:
            raise ValueError("no such row")
        early.zero_grad()
        loss = ((net(rows).squeeze(1) * weight).square() / weight).mean()  # LINE: origin
        loss.backward()
        early.step()
    total = sum(p.sum().item() for p in net.parameters())
    print(f"rank {rank} ends with {total:.6f}", flush=True)
    destroy_process_group()


def no_rank(rank, fault):
    """A process of the program's that joins no job is left alone, whatever it computes."""
    print(f"worker {rank}: {torch.zeros(1).log().item()}", flush=True)


if __name__ == "__main__":
    fault = "raise" if how == "raise" else "weight" if bad >= 0 else "none"
    if how in ("spawn", "raise"):
        mp.spawn(train, args=(fault,), nprocs=2)
    else:
        work = partial(no_rank if how == "workers" else train, fault=fault)
        context = mp.get_context("fork")
        ranks = [context.Process(target=work, args=(rank,)) for rank in (0, 1)]
        for process in ranks:
            process.start()  # the interpreter itself waits for them at its end
    print("the program ends")

"""What watching adds per step in a job of several gloo processes, and what one vote costs.

python benchmarks/ranks_overhead.py [--ranks 1 2 4] [--kinds ddp fsdp plain] [--constants]
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import NoReturn

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

from whynan.ranks.job import Job

KINDS = ("ddp", "fsdp", "plain")
STEPS, REPEATS, WIDTH, LAYERS, ROWS = 20, 9, 256, 8, 128
BLOCK_S = 1.0  # more ranks than cores make a step slow: then a block has fewer of them
LIMIT_S = 240


def training(kind: str) -> Callable[[], None]:
    torch.manual_seed(0)
    layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    net: nn.Module = nn.Sequential(*layers)
    world = dist.get_world_size()
    if kind == "ddp":
        net = nn.parallel.DistributedDataParallel(net)
    elif kind == "fsdp":
        fully_shard(net, mesh=dist.init_device_mesh("cpu", (world,)))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    x = torch.randn(ROWS, WIDTH)

    def step() -> None:
        optimizer.zero_grad()
        net(x).square().mean().backward()
        if kind == "plain":
            for p in net.parameters():
                dist.all_reduce(p.grad)
        optimizer.step()

    return step


def seconds(step: Callable[[], None], count: int) -> float:
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(count):
        step()
    dist.barrier()
    return (time.perf_counter() - begin) / count


def agreed_steps(step_s: float) -> int:
    """How many steps a block has; the same on all ranks, which wait for each other."""
    count = torch.tensor([max(2, min(STEPS, int(BLOCK_S / step_s)))])
    dist.broadcast(count, 0)
    return int(count)


def constants(job: Job) -> None:
    """What the model of docs/scale.md is made of, as far as processes on one machine can show it."""
    begin = time.perf_counter()
    job.vote(False, False, 0)
    first_s = time.perf_counter() - begin
    vote_s = statistics.median(
        seconds(lambda: job.vote(False, False, 0), 20) for _ in range(REPEATS)
    )
    dist.barrier()
    asked = []
    if dist.get_rank() == 1:  # rank 0 keeps the store
        statement = "x" * 20_000  # of a rank with one anomaly
        for i in range(200):
            begin = time.perf_counter()
            job.put(f"statement/{i}", statement)
            job.take(f"statement/{i}", 1.0)
            asked.append(time.perf_counter() - begin)
        world = dist.get_world_size()
        word_s = statistics.median(asked)
        print(
            f"| {world} | {1e3 * first_s:.0f} ms | {1e3 * vote_s:.2f} ms | {1e3 * word_s:.2f} ms |"
        )
    dist.barrier()


class Driver:
    """Of a run without harm."""

    def leave(self) -> NoReturn:
        raise SystemExit("harm in a benchmark")

    def keep_step(self) -> None: ...
    def say(self, text: str) -> None: ...
    def stepped(self, step: int) -> None: ...
    def failed(self, error: BaseException) -> None:
        raise error


def worker(kind: str) -> None:
    from whynan.ranks.lockstep import Lockstep
    from whynan.watching.plan import Plan

    torch.set_num_threads(1)
    lockstep = Lockstep(Plan(live_steps=0), Driver())
    watch = lockstep.watch
    watch.start()
    lockstep.start()
    dist.init_process_group("gloo")
    if kind == "constants":
        constants(lockstep.job)
        dist.destroy_process_group()
        return
    step = training(kind)
    for _ in range(3):
        step()
    steps = agreed_steps(seconds(step, 3))
    rows = []
    for _ in range(REPEATS):
        watch.quiet.active = False
        plain = seconds(step, steps)
        watch.quiet.active = True
        rows.append((plain, seconds(step, steps)))
    votes_s = statistics.median(
        seconds(lambda: lockstep.job.vote(False, False, 0), 20) for _ in range(5)
    )
    if dist.get_rank() == 0:
        plain = 1e3 * statistics.median(p for p, _ in rows)
        added = 1e3 * statistics.median(g - p for p, g in rows)
        ratio = statistics.median(g / p for p, g in rows)
        world = dist.get_world_size()
        vote = f"{1e3 * votes_s:.2f} ms" if world > 1 else "none"
        per_step = {"ddp": "0"}.get(kind, "1") if world > 1 else "0"
        print(
            f"| {kind} | {world} | {plain:.1f} ms | {ratio:.3f} x | {added:.2f} ms | {per_step} | {vote} |"
        )
    dist.destroy_process_group()


def job(kind: str, world: int) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    shared = {
        **os.environ, "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
        "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, "--worker", kind], env={**shared, "RANK": str(r)}
        )
        for r in range(world)
    ]
    try:
        for process in ranks:
            process.wait(LIMIT_S)
    finally:
        for process in ranks:
            process.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--kinds", choices=KINDS, nargs="+", default=KINDS)
    parser.add_argument("--constants", action="store_true", help="those of the model instead")
    parser.add_argument("--worker", choices=(*KINDS, "constants"))
    options = parser.parse_args()
    if options.worker:
        worker(options.worker)
        return
    if options.constants:
        print("| ranks | first vote | one vote | one word |\n|---|---|---|---|", flush=True)
        for world in [r for r in options.ranks if r > 1]:
            job("constants", world)
        return
    print("| kind | ranks | plain step | ratio | added | votes per step | one vote |", flush=True)
    print("|---|---|---|---|---|---|---|", flush=True)
    for kind in options.kinds:
        for world in options.ranks:
            job(kind, world)


if __name__ == "__main__":
    main()

"""What watching adds per step in a job of several gloo processes, and what one vote costs.

python benchmarks/ranks_overhead.py [--ranks 1 2 4]
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

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

KINDS = ("ddp", "fsdp", "plain")
STEPS, REPEATS, WIDTH, LAYERS, ROWS = 20, 9, 256, 8, 128


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


def worker(kind: str) -> None:
    from whynan.ranks.lockstep import Lockstep
    from whynan.watching.escalate import Watch

    torch.set_num_threads(1)

    def leave() -> None:
        raise SystemExit("harm in a benchmark")

    watch = Watch(
        policy="stop", found=lambda e, how: None, unexplained=lambda seen: None, live_steps=0
    )
    lockstep = Lockstep(watch, leave=leave, unseen=None, keep=leave, say=print)  # type: ignore[arg-type]  # never called
    lockstep.start()
    watch.start()
    dist.init_process_group("gloo")
    step = training(kind)
    for _ in range(5):
        step()
    rows = []
    for _ in range(REPEATS):
        watch.guard.active = False
        plain = seconds(step, STEPS)
        watch.guard.active = True
        rows.append((plain, seconds(step, STEPS)))
    votes_s = statistics.median(
        seconds(lambda: lockstep.job.vote(False, False, 0), 50) for _ in range(5)
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
            process.wait(300)
    finally:
        for process in ranks:
            process.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--worker", choices=KINDS)
    options = parser.parse_args()
    if options.worker:
        worker(options.worker)
        return
    print("| kind | ranks | plain step | ratio | added | votes per step | one vote |", flush=True)
    print("|---|---|---|---|---|---|---|", flush=True)
    for kind in KINDS:
        for world in options.ranks:
            job(kind, world)


if __name__ == "__main__":
    main()

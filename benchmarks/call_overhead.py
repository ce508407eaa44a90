"""What `whynan.watch(model)` adds to a call without gradients: plain and watched calls, interleaved.

python benchmarks/call_overhead.py

Processor time of the calling thread, the least of all blocks: a shared machine's pace is not in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import whynan

BLOCKS = 21
CALLS = 300
LIVE = 1_000  # the first operations are recorded


def deep(layers: int, width: int) -> nn.Module:
    parts = [m for _ in range(layers) for m in (nn.Linear(width, width), nn.Tanh())]
    return nn.Sequential(*parts).eval()


def per_call(model: nn.Module, x: torch.Tensor, without: Callable[[], Any], calls: int) -> float:
    """In microseconds."""
    begin = time.thread_time()
    for _ in range(calls):
        with without():
            model(x)
    return (time.thread_time() - begin) / calls * 1e6


def measured(model: nn.Module, x: torch.Tensor, without: Callable[[], Any]) -> tuple[float, float]:
    plain, watched = [], []
    per_call(model, x, without, CALLS)
    for _ in range(BLOCKS):
        plain.append(per_call(model, x, without, CALLS))
        with whynan.watch(model):
            per_call(model, x, without, LIVE)
            watched.append(per_call(model, x, without, CALLS))
    return min(plain), min(watched)


def main() -> None:
    torch.set_num_threads(1)
    rows = [("3 modules", deep(1, 8), 4), ("17 modules", deep(8, 64), 16)]
    print("| model | block | plain | watched | adds |\n|---|---|---|---|---|")
    for name, model, batch in rows:
        x = torch.rand(batch, model[0].in_features)  # type: ignore[index]  # a Sequential
        for block in (torch.no_grad, torch.inference_mode):
            plain, watched = measured(model, x, block)
            adds = watched - plain
            print(f"| {name} | `{block.__name__}` | {plain:.0f} | {watched:.0f} | {adds:.1f} |")


if __name__ == "__main__":
    main()

"""Many small steps under the guard, and many calls of a model: does memory or the time for one grow?

python benchmarks/soak.py [STEPS [CALLS]]
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import whynan


def measured(what: str, total: int, work: Callable[[], object]) -> None:
    """In ten parts."""
    for part in range(10):
        begin, spent = time.perf_counter(), time.process_time()
        for _ in range(total // 10):
            work()
        each = 1e3 * (time.perf_counter() - begin) / (total // 10)
        own = 1e3 * (time.process_time() - spent) / (total // 10)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        done = (part + 1) * (total // 10)
        print(
            f"{done:>7} {what}  {each:.2f} ms each, {own:.2f} of processor time  peak {peak:.0f} MB",
            flush=True,
        )


def steps(model: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[None]:
    data = TensorDataset(torch.randn(4096, 16), torch.randn(4096, 1))
    loader = DataLoader(data, batch_size=16, shuffle=True)
    while True:
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield


def main(step_count: int, call_count: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters())
    with whynan.watch(model, optimizer):
        training = steps(model, optimizer)
        measured("steps", step_count, lambda: next(training))
    model.eval()
    x = torch.randn(16, 16)
    with whynan.watch(model), torch.no_grad():
        measured("calls", call_count, lambda: model(x))


if __name__ == "__main__":
    given = [int(a) for a in sys.argv[1:]]
    main(*[*given, *(50_000, 20_000)[len(given) :]])

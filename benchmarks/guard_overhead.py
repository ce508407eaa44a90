"""What watching costs: plain against the guard, interleaved, as ratios.

python benchmarks/guard_overhead.py [--write] [--profile]
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import torch
from models import Step, _step, cnn, gpt, lstm, mlp
from torch import nn

from whynan.run.blocks import Silent
from whynan.watching.history import FIRST
from whynan.watching.plan import Plan
from whynan.watching.watch import Watch

DOC = Path(__file__).parent.parent / "docs" / "overhead.md"
BLOCK = 0.1  # seconds
BEGIN, END = "<!-- guard -->", "<!-- /guard -->"


@contextmanager
def guarded() -> Iterator[None]:
    """What `whynan run` is after its first steps: the guard alone."""
    watch = Watch(Plan(live_steps=0), Silent())
    watch.start(optimizers=[_Follow.optimizer])
    try:
        yield
    finally:
        watch.stop(None)


class _Follow:
    """The optimizer of the step that is measured: it exists before the guard does."""

    optimizer: torch.optim.Optimizer


def followed(build: Callable[[], Step]) -> Step:
    original = torch.optim.Optimizer.__init__

    def init(self: torch.optim.Optimizer, *args: object, **kwargs: object) -> None:
        original(self, *args, **kwargs)  # type: ignore[arg-type]  # handed on
        _Follow.optimizer = self

    torch.optim.Optimizer.__init__ = init  # type: ignore[method-assign]  # for this call
    try:
        return build()
    finally:
        torch.optim.Optimizer.__init__ = original  # type: ignore[method-assign]  # as it was


def many_tensors(layers: int, width: int, rows: int) -> Step:
    model = nn.Sequential(*[nn.Linear(width, width) for _ in range(layers)])
    return _step(model, torch.randn(rows, width), torch.randint(0, width, (rows,)))


CASES: dict[str, Callable[[], Step]] = {
    "MLP": lambda: mlp(1),
    "MLP, wide": lambda: mlp(4),
    "CNN, 10 batch norms": lambda: cnn(2),
    "GPT": lambda: gpt(1),
    "GPT, wide": lambda: gpt(4),
    "LSTM": lambda: lstm(2),
    "5 tensors, 1 row": lambda: many_tensors(3, 64, 1),
    "100 tensors": lambda: many_tensors(50, 128, 64),
    "500 tensors": lambda: many_tensors(250, 128, 64),
    "500 tensors, 512 rows": lambda: many_tensors(250, 128, 512),
}
MODES: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "plain": nullcontext,
    "guard": guarded,
}


def seconds(step: Step, mode: str, steps: int) -> list[float]:
    """Of each step, after the first ones: their magnitudes are kept for each layer."""
    found = []
    with MODES[mode]():
        for _ in range(FIRST + 1 + steps // 4):
            step()
        for _ in range(steps):
            begin = time.perf_counter()
            step()
            found.append(time.perf_counter() - begin)
    return found


def measure(name: str, repeats: int) -> tuple[float, float, int]:
    """(plain step in ms, ratio, parameter tensors). Others use the machine, too, and its pace
    changes from second to second: short blocks in pairs, first one then the other, and the median
    of the ratios of their lower quartiles."""
    torch.manual_seed(0)
    step = followed(CASES[name])
    steps = max(3, min(100, int(BLOCK / statistics.median(seconds(step, "plain", 5)))))
    plain, ratios = [], []
    for i in range(repeats):
        order = list(MODES) if i % 2 else list(reversed(MODES))
        found = {mode: statistics.quantiles(seconds(step, mode, steps))[0] for mode in order}
        plain.append(found["plain"])
        ratios.append(found["guard"] / found["plain"])
    tensors = sum(len(g["params"]) for g in _Follow.optimizer.param_groups)
    return 1e3 * statistics.median(plain), statistics.median(ratios), tensors


def run_for_peak(name: str, mode: str) -> None:
    step = followed(CASES[name])
    with MODES[mode]():
        for _ in range(8):
            step()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def peak_mb(name: str, mode: str) -> float:
    command = [sys.executable, __file__, "--peak", name, mode]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def profile(name: str) -> None:
    """Where the remaining time goes."""
    step = followed(CASES[name])
    with guarded():
        for _ in range(20):
            step()
        profiler = cProfile.Profile()
        profiler.enable()
        for _ in range(500):
            step()
        profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats("whynan|foreach_norm|method 'dot'")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=61)
    parser.add_argument("--only", choices=list(CASES))
    parser.add_argument("--write", action="store_true", help="put the table into docs/overhead.md")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--peak", nargs=2, metavar=("CASE", "MODE"))
    options = parser.parse_args()
    if options.peak:
        run_for_peak(*options.peak)
        return
    if options.profile:
        profile(options.only or "MLP")
        return
    lines = [
        "| program | parameter tensors | plain step | guard | peak memory |",
        "|---|---|---|---|---|",
    ]
    for name in [options.only] if options.only else CASES:
        plain, ratio, tensors = measure(name, options.repeats)
        memory = peak_mb(name, "guard") / peak_mb(name, "plain")
        lines.append(f"| {name} | {tensors} | {plain:.1f} ms | {ratio:.3f} x | {memory:.2f} x |")
        print(lines[-1], file=sys.stderr, flush=True)
    if options.write:
        text = DOC.read_text()
        head, rest = text.split(BEGIN)
        tail = rest.split(END)[1]
        DOC.write_text(head + BEGIN + "\n" + "\n".join(lines) + "\n" + END + tail)


if __name__ == "__main__":
    main()

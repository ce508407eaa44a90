"""What tracing costs: plain, detect_anomaly and whynan's tracer, interleaved, as ratios.

python benchmarks/trace_overhead.py [--write]
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import torch
from models import MODELS, Step

import whynan

MODES: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "plain": nullcontext,
    "anomaly": lambda: torch.autograd.detect_anomaly(check_nan=True),
    "trace": whynan.trace,
}
SCALES = (1, 4)
DOC = Path(__file__).parent.parent / "docs" / "overhead.md"


def seconds(step: Step, mode: str, steps: int) -> list[float]:
    """Of each step; two steps inside the mode first, so that set-up does not count."""
    found = []
    with MODES[mode]():
        step()
        step()
        for _ in range(steps):
            begin = time.perf_counter()
            step()
            found.append(time.perf_counter() - begin)
    return found


def measure(name: str, scale: int, repeats: int) -> dict[str, float]:
    """Lower quartiles of interleaved repeats, because others use the machine, too."""
    torch.manual_seed(0)
    step = MODELS[name](scale)
    once = statistics.median(seconds(step, "plain", 5))
    steps = max(4, min(50, int(0.1 / once)))
    times: dict[str, list[float]] = {mode: [] for mode in MODES}
    for _ in range(repeats):
        for mode, found in times.items():
            found += seconds(step, mode, steps)
    plain, anomaly, trace = (statistics.quantiles(times[mode])[0] for mode in MODES)
    return {"plain_ms": 1e3 * plain, "anomaly": anomaly / plain, "trace": trace / plain}


def peak_mb(name: str, scale: int, mode: str) -> float:
    """Peak resident memory of a process that runs five steps."""
    command = [sys.executable, __file__, "--peak", name, str(scale), mode]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def run_for_peak(name: str, scale: int, mode: str) -> None:
    step = MODELS[name](scale)
    with MODES[mode]():
        for _ in range(5):
            step()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def table(repeats: int) -> list[str]:
    lines = [
        "| model | plain step | `detect_anomaly` | `whynan run --mode trace` | peak memory |",
        "|---|---|---|---|---|",
    ]
    for name in MODELS:
        for scale in SCALES:
            row = measure(name, scale, repeats)
            memory = peak_mb(name, scale, "trace") / peak_mb(name, scale, "plain")
            lines.append(
                f"| {name} | {row['plain_ms']:.1f} ms | {row['anomaly']:.2f} x | "
                f"{row['trace']:.2f} x | {memory:.2f} x |"
            )
            print(lines[-1], file=sys.stderr, flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=25)
    parser.add_argument("--write", action="store_true", help="write docs/overhead.md")
    parser.add_argument("--peak", nargs=3, metavar=("MODEL", "SCALE", "MODE"))
    options = parser.parse_args()
    if options.peak:
        name, scale, mode = options.peak
        run_for_peak(name, int(scale), mode)
        return
    lines = table(options.repeats)
    if options.write:
        threads = torch.get_num_threads()
        head, rest = DOC.read_text().split(TITLE)
        part = HEAD.format(torch=torch.__version__, threads=threads, repeats=options.repeats)
        after = rest.split("|\n\n", 1)[1]  # what the figures mean is written by hand
        DOC.write_text(head + part + "\n".join(lines) + "\n\n" + after)


TITLE = "## `--mode trace`"
HEAD = """## `--mode trace`

Measured with torch {torch} on a CPU with {threads} thread(s) by `benchmarks/trace_overhead.py`: time
per training step, lower quartile of {repeats} interleaved repeats, as a ratio to that of the plain step; peak
memory of the process as a ratio to the plain process.

"""

if __name__ == "__main__":
    main()

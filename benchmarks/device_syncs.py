"""What watching costs on a device, as counts: waits for it and kernels per step, plain, guarded and recorded.

python benchmarks/device_syncs.py [--write]

On the tests' own accelerator (tests/toy), which counts what CUDA would wait for.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import torch
import torch.nn.functional as F
from guard_overhead import _Follow, followed, many_tensors
from models import Step, cnn, gpt, lstm, mlp
from torch import nn

from tests.toy import toy
from whynan.run.blocks import Silent
from whynan.watching.history import FIRST
from whynan.watching.plan import Plan
from whynan.watching.watch import Watch

DOC = ROOT / "docs" / "overhead.md"
BEGIN, END = "<!-- syncs -->", "<!-- /syncs -->"
STEPS = 20


class Sign(torch.optim.Optimizer):
    """One of the program's own, of which nobody knows whether its update may overflow."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        super().__init__(parameters, {"lr": 1e-4})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.sub_(parameter.grad.sign(), alpha=group["lr"])


def scaled() -> Step:
    """Mixed precision, with a `GradScaler`."""
    model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 10))
    x, y = torch.randn(64, 128), torch.randint(0, 10, (64,))
    optimizer, scaler = torch.optim.AdamW(model.parameters(), lr=1e-4), torch.amp.GradScaler("toy")

    def step() -> None:
        with torch.autocast("toy", dtype=torch.float16):
            loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


def clipped() -> Step:
    """Gradients clipped by their norm, and the loss looked at in each step."""
    model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 10))
    x, y = torch.randn(64, 128), torch.randint(0, 10, (64,))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> None:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()

    return step


def unknown() -> Step:
    """An optimizer that is not torch's."""
    model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 10))
    x, y = torch.randn(64, 128), torch.randint(0, 10, (64,))
    optimizer = Sign(model.parameters())

    def step() -> None:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


CASES: dict[str, Callable[[], Step]] = {
    "MLP": lambda: mlp(1),
    "CNN, 5 batch norms": lambda: cnn(1),
    "GPT": lambda: gpt(1),
    "LSTM": lambda: lstm(1),
    "100 tensors": lambda: many_tensors(50, 16, 4),
    "MLP, clipped, `loss.item()`": clipped,
    "MLP, float16, `GradScaler`": scaled,
    "MLP, optimizer of one's own": unknown,
}


def watched(plan: Plan) -> AbstractContextManager[Any]:
    watch = Watch(plan, Silent())
    watch.start(optimizers=[_Follow.optimizer])
    stack = ExitStack()
    stack.callback(watch.stop, None)
    return stack


MODES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "plain": nullcontext,
    "guarded": lambda: watched(Plan(live_steps=0)),
    "recorded": lambda: watched(Plan(always_live=True)),
}


def measure(name: str) -> dict[str, tuple[float, float]]:
    """(waits, kernels) of a step in each mode, without the first steps."""
    toy.load()
    torch.set_default_device("toy")
    torch.manual_seed(0)
    step, found = followed(CASES[name]), {}
    for mode, made in MODES.items():
        with made():
            for _ in range(FIRST + 1):
                step()
            with toy.counting() as counts:
                for _ in range(STEPS):
                    step()
        found[mode] = (counts.syncs / STEPS, counts.kernels / STEPS)
    return found


def table(rows: dict[str, dict[str, tuple[float, float]]]) -> str:
    lines = [
        "| program | plain: waits, kernels | guarded | recorded |",
        "|---|---|---|---|",
    ]
    for name, found in rows.items():
        plain, *others = (found[mode] for mode in MODES)
        cells = [f"+{s - plain[0]:g}, +{k - plain[1]:g}" for s, k in others]
        lines.append(f"| {name} | {plain[0]:g}, {plain[1]:g} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"put the table into {DOC.name}")
    parser.add_argument("--one", help=argparse.SUPPRESS)  # in a process of its own
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one)))
        return
    rows = {}
    for name in CASES:
        command = [sys.executable, __file__, "--one", name]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        rows[name] = json.loads(done.stdout.splitlines()[-1])
    print(table(rows))
    if options.write:
        text = DOC.read_text()
        before, after = text.split(BEGIN)[0], text.split(END)[1]
        DOC.write_text(f"{before}{BEGIN}\n{table(rows)}\n{END}{after}")


if __name__ == "__main__":
    main()

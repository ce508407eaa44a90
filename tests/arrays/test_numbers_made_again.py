"""A plain number that nobody warned of: the source is computed once more, without running it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.arrays.test_numpy_in_run import line_of, run
from tests.harness import ForkServer

HEAD = """
import functools
import math
import numpy as np
import torch
torch.manual_seed(0)
np.seterr(all="ignore")
net = torch.nn.Linear(3, 1)
opt = torch.optim.AdamW(net.parameters(), lr=0.1)
x = torch.ones(4, 3)

def step():
    opt.zero_grad()
    net(x).pow(2).mean().backward()
    opt.step()
"""

RATES = {
    "a function of the step": ("division_by_zero", """
def get_lr(it, warmup=np.float64(3), total=np.float64(3)):
    if it < warmup:
        return 0.1 * it / warmup
    progress = (it - warmup) / (total - warmup)  # HERE
    return 0.05 * (1 + math.cos(math.pi * progress))

for it in range(9):
    lr = get_lr(it)
    for g in opt.param_groups:
        g["lr"] = lr
    step()
"""),
    "by an earlier call, of what was measured": ("division_by_zero", """
def adapt(optimizer, measured, target):
    measured = np.float32(measured)
    for group in optimizer.param_groups:
        group["lr"] = float(group["lr"] * np.sqrt(target / measured))  # HERE

for it in range(5):
    if it > 2:
        step()
    moved = (net(x) - net(x)).pow(2).mean()
    adapt(opt, moved.item(), 1e-4)
"""),
    "set in a function": ("invalid_domain", """
class Settings:
    power = np.float64(0.9)
    def __init__(self, total):
        self.total = total

    @property
    def last(self):
        return self.total - 1

def adjust(optimizer, it, settings):
    left = 1 - it / settings.last
    rate = 0.1 * left ** settings.power  # HERE
    for group in optimizer.param_groups:
        group["lr"] = rate

settings = Settings(total=5)
for it in range(9):
    adjust(opt, it, settings)
    step()
"""),
    "an object that keeps the count": ("division_by_zero", """
class Schedule:
    def __init__(self, optimizer, warmup):
        self.optimizer, self.warmup, self.steps = optimizer, np.float32(warmup), 0

    def rate(self):
        scale = self.warmup ** -1.5  # HERE
        return 0.01 * (self.steps + 1) * scale

    def step(self):
        self.steps += 1
        for g in self.optimizer.param_groups:
            g["lr"] = self.rate()

def main():
    schedule = Schedule(opt, warmup=0)
    for it in range(9):
        schedule.step()
        step()

main()
"""),
    "torch's schedule of a partial": ("division_by_zero", """
def factor(step, *, total):
    done = [min(step, t) for t in total]
    parts = [np.float64(d) / t for d, t in zip(done, total)]  # HERE
    return 1.0 - sum(parts) / len(parts)

schedule = torch.optim.lr_scheduler.LambdaLR(opt, functools.partial(factor, total=(4, 0)))
for it in range(9):
    step()
    schedule.step()
"""),
    "a schedule of one's own": ("overflow", """
class Growing(torch.optim.lr_scheduler.LRScheduler):
    def get_lr(self):
        factor = np.float32(1e9) ** self.last_epoch  # HERE
        return [base * factor for base in self.base_lrs]

opt = torch.optim.SGD(net.parameters(), lr=0.1)
schedule = Growing(opt)
for it in range(9):
    opt.zero_grad()
    (net(x) * 0).mean().backward()
    opt.step()
    schedule.step()
"""),
}  # fmt: skip


@pytest.mark.parametrize("name", RATES)
def test_a_rate_leads_back_to_the_expression_that_made_it(
    programs: ForkServer, tmp_path: Path, name: str
) -> None:
    mechanism, text = RATES[name]
    result, script = run(programs, tmp_path, HEAD + text, mode="auto")
    assert result.report is not None
    anomaly = result.report["anomalies"][0]
    assert anomaly["location"]["line"] == line_of(script)
    assert (anomaly["mechanism"], anomaly["phase"]) == (mechanism, "data")


WEIGHTS = {
    "in the loop": """
counts = np.array([3.0, 0.0])
for it in range(3):
    weight = (counts / counts.max())[1]
    balance = 1.0 / weight  # HERE
    opt.zero_grad()
    loss = net(x).pow(2).mean() * float(balance)
    loss.backward()
    opt.step()
""",
    "of an object": """
class Loss:
    def __init__(self, counts):
        self.weights = [sum(counts) / np.float64(c) for c in counts]  # HERE

    def __call__(self, out, kind):
        return out.pow(2).mean() * self.weights[kind]

criterion = Loss([2, 5, 0])
for it in range(3):
    opt.zero_grad()
    criterion(net(x), it).backward()
    opt.step()
""",
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_a_factor_leads_back_to_it(programs: ForkServer, tmp_path: Path, name: str) -> None:
    result, script = run(programs, tmp_path, HEAD + WEIGHTS[name], mode="auto")
    assert result.report is not None
    anomaly = result.report["anomalies"][0]
    assert anomaly["location"]["line"] == line_of(script)
    assert (anomaly["mechanism"], anomaly["phase"]) == ("division_by_zero", "data")


UNKNOWN = {
    "read from somewhere": """
import json
for it in range(3):
    opt.param_groups[0]["lr"] = json.loads("NaN")
    step()
""",
    "drawn, so that it would be another one": """
import random
for it in range(3):
    opt.param_groups[0]["lr"] = np.float64(random.random()) / np.float64(random.choice([0.0, 0.0]))
    step()
""",
    "a quotient that was not used": """
def get_lr(it):
    wasted = np.float64(1) / np.float64(it - it)
    return json.loads("NaN")

import json
for it in range(3):
    opt.param_groups[0]["lr"] = get_lr(it)
    step()
""",
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_cannot_be_computed_again_is_not_guessed(
    programs: ForkServer, tmp_path: Path, name: str
) -> None:
    result, _ = run(programs, tmp_path, HEAD + UNKNOWN[name], mode="auto")
    assert result.report is not None
    assert result.report["anomalies"][0]["mechanism"] == "nonfinite_data"


COUNTED = """
calls = []

def get_lr(it):
    calls.append(it)
    opened = np.float64(it) - it
    return 0.1 / opened  # HERE

try:
    for it in range(3):
        opt.param_groups[0]["lr"] = get_lr(it)
        step()
finally:
    print("calls", calls)
"""


def test_nothing_of_the_programs_is_called_again(programs: ForkServer, tmp_path: Path) -> None:
    result, script = run(programs, tmp_path, HEAD + COUNTED, mode="auto")
    assert result.report is not None
    assert result.report["anomalies"][0]["location"]["line"] == line_of(script)
    assert result.stdout == "calls [0]\n"

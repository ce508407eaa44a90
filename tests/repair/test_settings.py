"""A number is changed where it is written: a settings file, a default, a field, an option."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.repair.bundles import unpacked, verified
from tests.repair.forked import RepairServer

HALF_MEAN = """
import torch
from torch import nn
{imports}

torch.manual_seed(0)
model = nn.Linear(4, 1).half()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(5):
    w = torch.rand(6).half() if step != 2 else torch.zeros(6).half()
    loss = {mean}(model(torch.randn(6, 4).half()).squeeze(1) ** 2, w)
    LOOP
"""
PROGRAMS = {
    "imported module": (
        HALF_MEAN.format(imports="from losses import mean", mean="mean")
        + """
--- config.py
EPS = 1e-12  # against empty batches
--- losses.py
import config


def mean(values, weights):
    return (values * weights).sum() / (weights.sum() + config.EPS)
""",
        "raise_eps",
        ["EPS = 1e-4  # against empty batches"],
    ),
    "default of a parameter": (
        HALF_MEAN.format(
            imports="""

def mean(values, weights, eps=1e-9):
    return (values * weights).sum() / (weights.sum() + eps)
""",
            mean="mean",
        ),
        "raise_eps",
        ["def mean(values, weights, eps=1e-4):"],
    ),
    "entry of a dictionary, kept by a module": (
        HALF_MEAN.format(imports="from losses import Mean", mean="Mean()")
        + """
--- settings.py
LOSS = {"kind": "mean", "eps": 1e-9}
--- losses.py
from settings import LOSS
from torch import nn


class Mean(nn.Module):
    def __init__(self):
        super().__init__()
        self.eps = LOSS["eps"]

    def forward(self, values, weights):
        return (values * weights).sum() / weights.sum().clamp(min=self.eps)
""",
        "raise_eps",
        ['LOSS = {"kind": "mean", "eps": 1e-4}'],
    ),
    "eps of the optimizer in a table of settings": (
        """
import torch
from settings import OPTIMIZER
from torch import nn

torch.manual_seed(0)
table = nn.Embedding(20, 4)
optimizer = torch.optim.Adam(table.parameters(), **OPTIMIZER)
for step in range(3):
    loss = table(torch.randint(0, 10, (8,))).pow(2).sum()
    LOOP
--- settings.py
OPTIMIZER = {"lr": 1e-2, "eps": 0.0}
""",
        "optimizer_eps",
        ['OPTIMIZER = {"lr": 1e-2, "eps": 1e-8}'],
    ),
    "learning rate of another file": (
        """
import torch
from config import LR
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=LR)
x = torch.randn(64, 10)
y = x.sum(1, keepdim=True)
for step in range(30):
    loss = ((model(x) - y) ** 2).mean()
    LOOP
--- config.py
LR = 5.0
""",
        "lower_lr",
        ["LR = 0.05"],
    ),
    "schedule that divides by a setting": (
        """
import torch
from schedule import factor
from torch import nn

torch.manual_seed(0)
model = nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    optimizer.param_groups[0]["lr"] = 0.1 * float(factor(step))
    loss = model(torch.randn(8, 2)).square().mean()
    LOOP
--- schedule.py
import torch

TOTAL, WARMUP = 3, 3


def factor(step):
    if step < WARMUP:
        return (step + 1) / WARMUP
    return 1 - torch.tensor(float(step - WARMUP)) / (TOTAL - WARMUP)
""",
        "divisor_at_least_1",
        ["    return 1 - torch.tensor(float(step - WARMUP)) / max(TOTAL - WARMUP, 1)"],
    ),
    "option of a module of torch": (
        """
import torch
from losses import make
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 5)
criterion = make()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(4):
    frames = model(torch.randn(6, 3, 4)).log_softmax(-1)
    lengths = torch.tensor([2, 3, 7 if step == 2 else 2])
    loss = criterion(frames, torch.randint(1, 5, (3, 7)), torch.tensor([6, 6, 6]), lengths)
    LOOP
--- losses.py
from torch import nn


def make():
    return nn.CTCLoss(reduction="mean")
""",
        "zero_infinity",
        ['    return nn.CTCLoss(reduction="mean", zero_infinity=True)'],
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_number_is_changed_where_it_is_written(
    repairs: RepairServer, tmp_path: Path, name: str
) -> None:
    text, kind, lines = PROGRAMS[name]
    assert verified(repairs.fix(unpacked(tmp_path, text))) == (kind, lines)


def test_an_option_of_the_command_line_keeps_its_name(
    repairs: RepairServer, tmp_path: Path
) -> None:
    text = """
    import argparse

    import torch
    from torch import nn

    parser = argparse.ArgumentParser()
    parser.add_argument("--learning-rate", type=float, default=5.0)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.learning_rate)
    x = torch.randn(64, 10)
    y = x.sum(1, keepdim=True)
    for step in range(30):
        loss = ((model(x) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    """
    kind, lines = verified(repairs.fix(unpacked(tmp_path, text)))
    assert (kind, lines) == (
        "lower_lr",
        ['parser.add_argument("--learning-rate", type=float, default=0.05)'],
    )


def test_a_fraction_is_no_count(repairs: RepairServer, tmp_path: Path) -> None:
    """`1 - decay**step` is 0 once; at least 1 it would be another number at every other step."""
    text = """
    import torch

    w = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.01)
    average = torch.zeros(3)
    for step in range(4):
        average = 0.9 * average + 0.1 * w.detach() * step
        loss = (w * average / (1 - 0.9**step)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    """
    found = repairs.fix(unpacked(tmp_path, text))
    assert found["anomaly"] == "division_by_zero"
    assert "divisor_at_least_1" not in {f["kind"] for f in found["fixes"]}

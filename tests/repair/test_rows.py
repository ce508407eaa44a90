"""Rows that are no data: left out where batches are cut from it, inputs and targets together."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.repair.bundles import unpacked, verified
from tests.repair.forked import RepairServer

START = """
import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
rng = np.random.default_rng(0)
"""
TRAIN = """
net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
"""
PROGRAMS = {
    "a fill value in an earlier batch": (
        START
        + """
x = torch.randn(40, 3)
y = x.sum(1)
y[14] = 9.96921e36
"""
        + TRAIN
        + """
for k in range(0, 40, 8):
    loss = (net(x[k : k + 8]).squeeze(1) - y[k : k + 8]).square().mean()
    LOOP
""",
        "drop_fill_values",
        ["measured = y.abs() < 1e18", "x, y = x[measured], y[measured]"],
    ),
    "a gap in a column that is scaled": (
        START
        + """
table = rng.normal(5, 2, (40, 3)).astype("f4")
goal = table.sum(1)
table[7, 1] = np.nan
table = (table - np.mean(table, axis=0)) / np.std(table, axis=0)
x = torch.from_numpy(table)
y = torch.from_numpy(goal)
"""
        + TRAIN
        + """
for step in range(4):
    loss = (net(x).squeeze(1) - y).square().mean()
    LOOP
""",
        "drop_rows",
        ["known = np.isfinite(table).all(axis=1)", "table, goal = table[known], goal[known]"],
    ),
    "a target without a logarithm": (
        START
        + """
x = torch.randn(40, 3)
price = torch.exp(x[:, 0] + 4)
price[21] = 0.0
"""
        + TRAIN
        + """
for rows in torch.arange(len(x)).split(8):
    loss = (net(x[rows]).squeeze(1) - torch.log(price[rows])).square().mean()
    LOOP
""",
        "drop_rows",
        ["known = price > 0", "x, price = x[known], price[known]"],
    ),
    "a duration of 0": (
        START
        + """
x, hours = torch.randn(40, 3), torch.randint(1, 90, (40,)).float()
hours[21] = 0.0
power = nn.Parameter(torch.tensor(0.7))
"""
        + TRAIN
        + """
for rows in torch.arange(40).split(8):
    t, k = hours[rows] / 24, power
    rate = torch.exp(0.1 * net(x[rows]).squeeze(1))
    loss = ((t * rate) ** k - (k - 1) * torch.log(t * rate)).mean()
    LOOP
""",
        "clamp_data",
        ["hours = hours.clamp(min=(hours[hours > 0].min() / 2).item())"],
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_no_data(repairs: RepairServer, tmp_path: Path, name: str) -> None:
    text, kind, lines = PROGRAMS[name]
    assert verified(repairs.fix(unpacked(tmp_path, text))) == (kind, lines)

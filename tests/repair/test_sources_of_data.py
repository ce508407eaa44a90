"""Where numbers come in that no formula can take: spreads of 0, gaps, marks, shares at the edge."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.repair.bundles import advice, unpacked, verified
from tests.repair.forked import RepairServer

HEAD = """
import numpy as np
import torch
from torch import nn
from torch.distributions import Beta, Weibull
"""
NET = """
torch.manual_seed(0)
net = nn.Linear(2, {out})
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for i in range(0, 40, 10):
"""
PROGRAMS = {
    "group of one": (
        HEAD
        + """
import pandas as pd

table = pd.DataFrame({"town": [0] * 20 + [1] * 19 + [2], "rent": np.linspace(4, 9, 40) ** 2})
spread = table.groupby("town").rent.transform("std")
table["level"] = (table.rent - table.groupby("town").rent.transform("mean")) / spread
x = torch.tensor(table[["level", "town"]].to_numpy(), dtype=torch.float32)
"""
        + NET.format(out=1)
        + """
    loss = net(x[i : i + 10]).square().mean()
    LOOP
""",
        "unit_spread",
        [
            'table["level"] = (table.rent - table.groupby("town").rent.transform("mean")) / '
            "spread.fillna(0).replace(0, 1)"
        ],
    ),
    "groups, each for itself": (
        HEAD
        + """
import pandas as pd

table = pd.DataFrame({"town": [0] * 20 + [1] * 19 + [2], "rent": np.linspace(4, 9, 40) ** 2})


def level(x):
    return (x - x.mean()) / x.std()


table["level"] = table.groupby("town").rent.transform(level)
x = torch.tensor(table[["level", "town"]].to_numpy(), dtype=torch.float32)
"""
        + NET.format(out=1)
        + """
    loss = net(x[i : i + 10]).square().mean()
    LOOP
""",
        "unit_spread",
        ["    return (x - x.mean()) / (x.std() if x.std() > 0 else 1)"],
    ),
    "rate of nothing": (
        HEAD
        + """
import pandas as pd

table = pd.DataFrame({"sold": np.ones(41), "visits": [*range(1, 30), 0, *range(1, 12)]})
table["rate"] = table["sold"] / table["visits"]
x = torch.tensor(table[["rate", "sold"]].to_numpy(), dtype=torch.float32)
"""
        + NET.format(out=1)
        + """
    loss = net(x[i : i + 10]).square().mean()
    LOOP
""",
        "drop_rows",
        ['table = table[table["visits"] != 0]'],
    ),
    "range of a column": (
        HEAD
        + """
np.seterr(invalid="ignore")
table = np.stack([np.linspace(1, 3, 40), np.full(40, 7.0)], 1)
table = (table - table.min(0)) / (table.max(0) - table.min(0))
x = torch.tensor(table, dtype=torch.float32)
"""
        + NET.format(out=1)
        + """
    loss = net(x[i : i + 10]).square().mean()
    LOOP
""",
        "unit_spread",
        [
            "table = (table - table.min(0)) / np.where((table.max(0) - table.min(0)) > 0, "
            "table.max(0) - table.min(0), 1)"
        ],
    ),
    "shares of a loader": (
        HEAD
        + """
from torch.utils.data import DataLoader, TensorDataset

features, share = torch.linspace(-1, 1, 80).reshape(40, 2), torch.linspace(0.2, 1.0, 40)
torch.manual_seed(0)
net = nn.Linear(2, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for x, y in DataLoader(TensorDataset(features, share), batch_size=10):
    a, b = (nn.functional.softplus(net(x)) + 1).unbind(1)
    loss = -Beta(a, b, validate_args=False).log_prob(y).mean()
    LOOP
""",
        "squeeze_shares",
        ["share = share.clamp(1e-3, 1 - 1e-3)"],
    ),
    "times of 0": (
        HEAD
        + """
x, days = torch.ones(40, 2), torch.tensor([0.0, *range(1, 40)])
"""
        + NET.format(out=1)
        + """
    scale = nn.functional.softplus(net(x[i : i + 10]).squeeze(1)) + 1
    loss = -Weibull(scale, torch.tensor(0.7), validate_args=False).log_prob(days[i : i + 10]).mean()
    LOOP
""",
        "drop_rows",
        ["known = days > 0", "x, days = x[known], days[known]"],
    ),
    "concentration of a distribution": (
        HEAD
        + """
from torch.distributions import Dirichlet

x = torch.linspace(-1, 1, 80).reshape(40, 2)
"""
        + NET.format(out=3)
        + """
    amounts = torch.relu(net(x[i : i + 10]))
    loss = -Dirichlet(amounts).log_prob(torch.full((3,), 1 / 3)).mean()
    LOOP
""",
        "softplus_output",
        ["    amounts = torch.nn.functional.softplus(net(x[i : i + 10])) + 1e-3"],
    ),
    "series that are read together": (
        HEAD
        + """

def read():
    height = torch.linspace(1, 4, 40)
    height[17] = 1e20
    return height, torch.linspace(0, 1, 40)


height, target = read()
x = torch.stack([height, height**2], 1)
x = x / x.mean(0)
"""
        + NET.format(out=1)
        + """
    loss = (net(x[i : i + 10]).squeeze(1) - target[i : i + 10]).square().mean()
    LOOP
""",
        "drop_fill_values",
        ["measured = height.abs() < 1e10", "height, target = height[measured], target[measured]"],
    ),
    "mark among the targets": (
        HEAD
        + """
x, flow = torch.ones(40, 2), torch.linspace(1, 9, 40)
flow[22] = -999
"""
        + NET.format(out=1)
        + """
    loss = (net(x[i : i + 10]).squeeze(1) - flow[i : i + 10].log()).square().mean()
    LOOP
""",
        "drop_rows",
        ["known = flow != -999", "x, flow = x[known], flow[known]"],
    ),
    "mean of no history": (
        HEAD
        + """
x = torch.linspace(-1, 1, 80).reshape(40, 2)
seen = []
"""
        + NET.format(out=1)
        + """
    optimizer.param_groups[0]["lr"] = 0.01 / (1 + np.mean(seen))
    loss = net(x[i : i + 10]).square().mean()
    LOOP
    seen.append(loss.item())
""",
        "no_history",
        ['    optimizer.param_groups[0]["lr"] = 0.01 / (1 + (np.mean(seen) if seen else 0.0))'],
    ),
    "average that never moves": (
        HEAD
        + """
DECAY, EPS = 1.0, 1e-8
x = torch.linspace(-1, 1, 80).reshape(40, 2)
square, t = torch.zeros(1, 2), torch.tensor(0)
"""
        + NET.format(out=1)
        + """
    loss = net(x[i : i + 10]).square().mean()
    loss.backward()
    with torch.no_grad():
        t += 1
        square = DECAY * square + (1 - DECAY) * net.weight.grad**2
        net.weight -= 0.01 * net.weight.grad / ((square / (1 - DECAY**t)).sqrt() + EPS)
        net.weight.grad = None
""",
        "average_moves",
        ["DECAY, EPS = 0.999, 1e-8"],
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_data_is_mended_where_it_comes_in(
    repairs: RepairServer, tmp_path: Path, name: str
) -> None:
    text, kind, lines = PROGRAMS[name]
    assert verified(repairs.fix(unpacked(tmp_path, text))) == (kind, lines)


def test_shares_of_nothing_get_a_sentence(repairs: RepairServer, tmp_path: Path) -> None:
    text = (
        HEAD
        + """
counts = torch.tensor([[1.0, 3.0], [0.0, 0.0], [2.0, 2.0]])
net = nn.Linear(2, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(3):
    shares = counts / counts.sum(1, keepdim=True)
    drawn = torch.distributions.Categorical(probs=shares).sample()
    loss = nn.functional.cross_entropy(net(counts), drawn)
    LOOP
"""
    )
    found = repairs.fix(unpacked(tmp_path, text))
    assert verified(found) == (None, [])
    assert "row 1 of `counts` adds up to 0" in advice(found)

"""A number that runs down to 0, begins there, or stands in a settings file is mended where it is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.repair.bundles import unpacked, verified
from tests.repair.forked import RepairServer

PROGRAMS = {
    "eps in a settings file": (
        """
import torch
import yaml

with open("model.yaml") as f:
    eps = float(yaml.safe_load(f)["layer"].get("eps", 1e-6))
x = torch.ones(3, 4, dtype=torch.float16)
x[1] = 0
print((x / (x.abs().sum(-1, keepdim=True) + eps)).mean())
--- model.yaml
layer:
  eps: 1.0e-9  # of float32
  width: 4
""",
        "raise_eps",
        ["  eps: 1.0e-4  # of float32"],
    ),
    "learning rate in a settings file": (
        """
import json
from pathlib import Path

import torch
from torch import nn

conf = json.loads(Path("conf.json").read_text())
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=conf["optimizer"]["rate"])
x = torch.randn(64, 10)
y = x.sum(1, keepdim=True)
for step in range(30):
    loss = ((model(x) - y) ** 2).mean()
    LOOP
--- conf.json
{"optimizer": {"rate": 5.0, "name": "sgd"}, "seed": 0}
--- older.json
{"rate": 0.01}
""",
        "lower_lr",
        ['{"optimizer": {"rate": 0.05, "name": "sgd"}, "seed": 0}'],
    ),
    "momentum in a settings file, behind a factory": (
        """
import json
from pathlib import Path

import torch
from torch import nn


def build(model, spec):
    spec = dict(spec)
    return getattr(torch.optim, spec.pop("name"))(model.parameters(), **spec)


torch.manual_seed(0)
model = nn.Linear(10, 1)
optimizer = build(model, json.loads(Path("conf.json").read_text())["optimizer"])
x = torch.randn(64, 10)
y = x.sum(1, keepdim=True)
for step in range(60):
    loss = ((model(x) - y) ** 2).mean()
    LOOP
--- conf.json
{"optimizer": {"name": "SGD", "lr": 0.01, "momentum": 9.0}}
""",
        "lower_momentum",
        ['{"optimizer": {"name": "SGD", "lr": 0.01, "momentum": 0.9}}'],
    ),
    "weight decay in an option": (
        """
import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--weight-decay", type=float, default=50)
opt = parser.parse_args([])
torch.manual_seed(0)
model = nn.Linear(10, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=opt.weight_decay)
x = torch.randn(64, 10)
y = x.sum(1, keepdim=True)
for step in range(60):
    loss = ((model(x) - y) ** 2).mean()
    LOOP
""",
        "lower_weight_decay",
        ['parser.add_argument("--weight-decay", type=float, default=0.0005)'],
    ),
    "keywords of a settings file": (
        """
import tomllib

import torch
from net import Net

with open("run.toml", "rb") as f:
    run = tomllib.load(f)
torch.manual_seed(0)
net = Net(**run["net"])
optimizer = torch.optim.Adam(net.parameters(), **run["adam"])
x = torch.randn(16, 32)
for step in range(4):
    loss = net(x).square().mean()
    LOOP
--- net.py
from torch import nn


class Net(nn.Sequential):
    def __init__(self, width, depth, spread):
        super().__init__(*(nn.Linear(width, width) for _ in range(depth)))
        for layer in self:
            nn.init.normal_(layer.weight, std=spread)
--- run.toml
[net]
width = 32
depth = 14
spread = 90.0
[adam]
lr = 0.001
""",
        "kaiming_init",
        ["spread = 0.2"],
    ),
    "numbered rows of an array that ends at 0": (
        """
import numpy as np
import torch
from torch import nn

taus = np.linspace(1.0, 0.0, 8).astype(np.float32)
model = nn.Linear(3, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def shares(score, tau):
    return torch.softmax(score / tau, dim=1)


x = torch.randn(5, 3)
for epoch, tau in enumerate(taus):
    for step in range(2):
        loss = -shares(model(x), float(tau)).square().sum()
        LOOP
""",
        "schedule_floor",
        ["taus = np.linspace(1.0, 0.1, 8).astype(np.float32)"],
    ),
    "table that ends at 0": (
        """
import torch
from torch import nn

widths = torch.linspace(1.0, 0.0, 6)
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for width in widths:
    loss = torch.sigmoid(model(torch.ones(4, 3)) / width).sum()
    LOOP
""",
        "schedule_floor",
        ["widths = torch.linspace(1.0, 0.1, 6)"],
    ),
    "spread that is annealed": (
        """
import torch
from torch import nn

FIRST = 0.5
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)


def spread(step):
    return max(FIRST * (1 - step / 4), 0.0)


for step in range(6):
    sigma = torch.tensor(spread(step))
    loss = ((model(torch.ones(4, 3)) / sigma) ** 2).sum()
    LOOP
""",
        "schedule_floor",
        ["    return max(FIRST * (1 - step / 4), 0.05)"],
    ),
    "spread that a distribution refuses": (
        """
import torch
from torch import nn
from torch.distributions import Normal

model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for step in range(6):
    spread = 2.0 - 0.5 * step
    loss = -Normal(model(torch.ones(4, 3)), spread).log_prob(torch.zeros(4, 1)).mean()
    LOOP
""",
        "schedule_floor",
        ["    spread = max(2.0 - 0.5 * step, 0.2)"],
    ),
    "share that leaves nothing": (
        """
import torch
from torch import nn

left = torch.cumprod(1 - torch.linspace(0.1, 1.0, 4), 0)
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for step in range(5):
    loss = (model(torch.ones(4, 3)) / left.sqrt()).square().sum()
    LOOP
""",
        "schedule_floor",
        ["left = torch.cumprod(1 - torch.linspace(0.1, 0.999, 4), 0)"],
    ),
    "temperature of 0": (
        """
import torch
from settings import Settings
from torch import nn

model = nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(3):
    loss = (model(torch.ones(4, 3)) / Settings().temperature).logsumexp(1).sum()
    LOOP
--- settings.py
class Settings:
    temperature: float = 0.0
""",
        "scale_of_1",
        ["    temperature: float = 1.0"],
    ),
    "rate past its end": (
        """
import torch
from torch import nn


def factor(step):
    return (1 - torch.tensor(step / 3)).pow(2) ** 0.5 * ((1 - torch.tensor(step / 3)) ** 0.5).item()


model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    optimizer.param_groups[0]["lr"] = 0.1 * float(factor(step))
    loss = model(torch.ones(2, 3)).square().mean()
    LOOP
""",
        "np_maximum",
        [
            "    return (1 - torch.tensor(step / 3)).pow(2) ** 0.5 * "
            "((1 - torch.tensor(step / 3)).clamp(min=0) ** 0.5).item()"
        ],
    ),
    "layers counted from 0": (
        """
import numpy as np
import torch
from torch import nn


def drawn(layer, number):
    with np.errstate(divide="ignore"):
        spread = 0.1 / np.sqrt(np.float64(number))
    nn.init.normal_(layer.weight, std=float(spread))
    return layer


layers = nn.Sequential(*(drawn(nn.Linear(4, 4), i) for i in range(3)))
optimizer = torch.optim.SGD(layers.parameters(), lr=0.01)
for step in range(3):
    loss = layers(torch.ones(2, 4)).sum()
    LOOP
""",
        "count_from_1",
        ["        spread = 0.1 / np.sqrt(np.float64(number + 1))"],
    ),
    "positions counted from 0": (
        """
import torch
from torch import nn

model = nn.Linear(5, 5)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(3):
    loss = (model(torch.ones(2, 5)) * (1 / (torch.arange(5) * 2.0)).sqrt()).sum()
    LOOP
""",
        "count_from_1",
        [
            "    loss = (model(torch.ones(2, 5)) * (1 / (torch.arange(1, 5 + 1) * 2.0)).sqrt()).sum()"
        ],
    ),
    "rate of step 0": (
        """
import numpy as np
import torch
from torch import nn


def factor(step):
    return 0.1 / np.sqrt(np.float64(step))


model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
for step in range(3):
    loss = model(torch.ones(2, 3)).square().sum()
    LOOP
    schedule.step()
""",
        "count_from_1",
        ["    return 0.1 / np.sqrt(np.float64(step + 1))"],
    ),
    "rate of an object that is called": (
        """
import numpy as np
import torch
from torch import nn


class Falling:
    def __init__(self, shift):
        self.shift = shift

    def __call__(self, epoch):
        return np.float64(epoch + self.shift) ** -0.5


model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, Falling(0))
for step in range(3):
    loss = model(torch.ones(2, 3)).square().sum()
    LOOP
    schedule.step()
""",
        "count_from_1",
        ["        return np.float64(epoch + 1 + self.shift) ** -0.5"],
    ),
    "rate of a counter of its own": (
        """
import numpy as np
import torch
from torch import nn


class Falling:
    def __init__(self, optimizer):
        self.optimizer, self.turn = optimizer, 0

    def step(self):
        turn = np.float32(self.turn)
        self.optimizer.param_groups[0]["lr"] = float(0.1 * turn**-0.5)
        self.turn += 1


model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
schedule = Falling(optimizer)
for step in range(3):
    schedule.step()
    loss = model(torch.ones(2, 3)).square().sum()
    LOOP
""",
        "count_from_1",
        ["        turn = np.float32(self.turn + 1)"],
    ),
    "width that begins at 0": (
        """
import torch
from torch import nn

from widths import LENGTH, NOISE


def raw(width):
    width = torch.tensor(width)
    return nn.Parameter(torch.log(torch.expm1(width)))


length, noise = raw(LENGTH), raw(NOISE)
optimizer = torch.optim.SGD([length, noise], lr=0.01)
for step in range(3):
    loss = nn.functional.softplus(torch.stack([length, noise])).square().sum()
    LOOP
--- widths.py
LENGTH = 0.5
NOISE = 0.0
""",
        "positive_setting",
        ["NOISE = 0.01"],
    ),
    "noise that leaves nothing": (
        """
import torch
from schedule import left

remains = left(8)
x = torch.randn(16, 2)
with torch.no_grad():
    print(((x - (1 - remains[-1]).sqrt()) / remains[-1].sqrt()).mean())
--- schedule.py
import torch


def left(n):
    beta = torch.linspace(0.1, 1.3, n).clamp(0, 1)
    return torch.cumprod(1 - beta, dim=0)
""",
        "schedule_floor",
        ["    beta = torch.linspace(0.1, 1.3, n).clamp(0, 0.999)"],
    ),
    "loss scale in a settings file": (
        """
import json
from pathlib import Path

import torch
from torch import nn

conf = json.loads(Path("conf.json").read_text())
torch.manual_seed(0)
model = nn.Linear(8, 1).half()
x, y = torch.randn(16, 8).half(), torch.randn(16, 1).half()
for step in range(3):
    scaled = ((model(x) - y) ** 2).mean() * conf["scale"]
    grads = torch.autograd.grad(scaled, list(model.parameters()))
    with torch.no_grad():
        for p, g in zip(model.parameters(), grads):
            p -= (0.01 * g.float() / conf["scale"]).half()
--- conf.json
{"scale": 131072, "steps": 3}
""",
        "lower_scale",
        ['{"scale": 1024, "steps": 3}'],
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_number_is_mended_where_it_is_written(
    repairs: RepairServer, tmp_path: Path, name: str
) -> None:
    text, kind, lines = PROGRAMS[name]
    assert verified(repairs.fix(unpacked(tmp_path, text))) == (kind, lines)


def test_a_distance_between_positions_is_not_counted_from_1(
    repairs: RepairServer, tmp_path: Path
) -> None:
    text = """
    import torch
    from torch import nn

    place = torch.arange(4).float()
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(3):
        loss = (model(torch.ones(4, 4)) / (place[:, None] - place[None, :])).sum()
        LOOP
    """
    kinds = {f["kind"] for f in repairs.fix(unpacked(tmp_path, text))["fixes"]}
    assert "count_from_1" not in kinds

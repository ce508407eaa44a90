"""The cause that stands first: what the operands come from, before what is missing at the operation."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.harness import ForkServer
from tests.repair.bundles import unpacked

ROWS = """
import torch
torch.manual_seed(0)
x = torch.randn(64, 3)
x[41, 1] = {value}
p = torch.exp(-(x ** 2).sum(1) / 2)
print(torch.log(p).sum())
"""
BATCHES = """
import torch
torch.manual_seed(0)
table, target = torch.randn(96, 4), torch.rand(96)
target[53] = {value}
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
for k in range(0, 96, 16):
    guess = net(table[k : k + 16]).squeeze(1)
    loss = -torch.log(torch.exp(-((guess - target[k : k + 16]) ** 2))).mean()
    LOOP
"""
COUNTED = """
import torch
class Mean:
    def __init__(self):
        self.t = torch.tensor(0.0)
        self.m = torch.zeros(3)
    def add(self, x):
        self.m = {decay} * self.m + (1 - {decay}) * x
        out = self.m / (1 - {decay} ** self.t)
        self.t += 1
        return out
print(Mean().add(torch.rand(3)))
"""
MASKED = """
import torch
scores = torch.rand(4, 5)
keep = torch.ones(4, 5, dtype=torch.bool)
keep[2] = {kept}
best = scores.masked_fill(~keep, float("-inf")).max(dim=1).values
print((best - best.detach().clone()).sum())
"""
TARGETS = """
import torch
logits, labels = torch.randn(6, 4, requires_grad=True), torch.full((6,), -100)
{change}
loss = torch.nn.functional.cross_entropy(logits, labels)
loss.backward()
print(loss.item())
"""
SETTINGS = """
import numpy as np
import torch
from options import Options
o = Options()
net = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
def rate(step):
    return float(np.float64({expression}) ** -0.5)
for step in range(4):
    optimizer.param_groups[0]["lr"] = 0.1 * rate(step)
    loss = net(torch.rand(8, 2)).square().mean()
    LOOP
--- options.py
from dataclasses import dataclass
@dataclass
class Options:
    offset: int = {offset}
"""
EPS = """
import torch
import yaml
with open("c.yaml") as file:
    c = yaml.safe_load(file)
p = torch.zeros(3, dtype=torch.float16)
print(torch.log(p + c["loss"]["tiny"]))
--- c.yaml
train: {lr: 0.1}
loss: {weight: 1.0, tiny: 1.0e-10}
"""
BUFFER = """
import json
import torch
c = json.load(open("c.json"))
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("fill", torch.tensor(c["fill_value"]))
    def forward(self, x):
        return x * self.fill
print(Net().half()(torch.zeros(2, dtype=torch.float16)))
--- c.json
{"dim": 4, "fill_value": -1e8}
"""
FIRST = [
    # the row that no other comes near
    (ROWS.format(value=40.0), "bad_data", "row 41 of `x` holds 40 in column 1"),
    (BATCHES.format(value=30.0), "bad_data", "row 53 of `target` holds 30"),
    # cut off
    ("import torch\nv = torch.relu(torch.tensor([0.5, -0.3]))\nprint(torch.log(v))", "saturation", "`relu` made exactly 0 of -0.3"),
    ("import torch\nx = torch.tensor([[-2.0], [1.0]])\nh = torch.nn.ReLU()(torch.nn.functional.linear(x, torch.ones(1, 1)))\nprint(3 / h)", "saturation", "of -2"),
    # 1 less what has become 1
    ("import torch\nz = torch.tensor([40.0, 1.0])\np = 1 / (1 + torch.exp(-z))\nprint(torch.log(1 - p))", "saturation", "added to 1 gives exactly 1"),
    (COUNTED.format(decay=0.9), "computed", "its exponent is 0"),
    (COUNTED.format(decay=0.99), "computed", "it counts from 0"),
    # nothing to add up, nothing that is counted
    ("import torch\nedges = torch.tensor([[0., 1, 0], [1, 0, 0], [0, 0, 0]])\nprint(edges.sum(1) ** -0.5)", "constant_input", "all 3 values that are added up at [2] are 0"),
    ("import torch\ny, p = torch.tensor([0, 0, 2]), torch.tensor([0, 2, 2])\nm = torch.bincount(y * 4 + p, minlength=16).view(4, 4).float()\nprint(m.diag() / (m.sum(0) + m.sum(1) - m.diag()))", "empty_mask", "nothing is counted at [1]"),
    # drawn
    ("import torch\ntorch.manual_seed(0)\nu = torch.rand(40_000, dtype=torch.float16)\nprint(torch.log(u).sum())", "low_precision", "was exactly 0"),
    # masks
    (MASKED.format(kept=False), "empty_mask", "all entries of the row are masked with -inf"),
    ("import torch\nx = torch.tensor([[1.0, 2.0, 3.0]]).masked_fill(torch.tensor([[False, True, False]]), -torch.inf)\nprint(torch.log(torch.softmax(x, 1)) * torch.tensor([1.0, 0.0, 1.0]))", "empty_mask", "a probability of exactly 0"),
    (TARGETS.format(change=""), "empty_mask", "6 of 6 are -100"),
    # paired with itself
    ("import torch\nx = torch.rand(3, 2, requires_grad=True)\nd = (x[:, None] - x[None]).pow(2).sum(-1).sqrt()\nd.sum().backward()\nprint(x.grad)", "cancellation", "the same element is taken from itself"),
    # set elsewhere
    (SETTINGS.format(expression="step + o.offset", offset=0), "setting", "options.py:4 sets `offset=0`"),
    (EPS, "eps_too_small", "c.yaml:2 sets `tiny: 1.0e-10`"),
    (BUFFER, "setting", "c.json:1 sets"),
    # fewer rows than the matrix has columns
    (
        "import torch\nX = torch.tensor([[1.0, 2.0, 4.0]])\nprint(torch.linalg.inv(X.T @ X))",
        "too_few_values",
        "the matrix asks for 3",
    ),
    # an eigenvalue that is 0
    ("import torch\ntorch.manual_seed(0)\na = torch.randn(40, 8)\nprint(torch.sqrt(torch.linalg.eigvalsh(a @ a.T)).sum())", "cancellation", "a rounding error beside the largest"),
    # a form that has a stable one
    ("import torch\nv = torch.tensor([1.0, 120.0])\nprint(torch.log(1 + torch.exp(v)))", "wrong_function", "softplus"),
]  # fmt: skip


def first(programs: ForkServer, folder: Path, text: str) -> tuple[str, str] | None:
    report = programs.run(unpacked(folder, textwrap.dedent(text))).report
    assert report is not None
    causes = report["anomalies"][0]["causes"] if report["anomalies"] else []
    return (causes[0]["code"], causes[0]["evidence"]) if causes else None


@pytest.mark.parametrize(("program", "code", "evidence"), FIRST)
def test_root_stands_first(
    program: str, code: str, evidence: str, programs: ForkServer, tmp_path: Path
) -> None:
    found = first(programs, tmp_path, program)
    assert found is not None
    assert found[0] == code
    assert evidence in found[1]


@pytest.mark.parametrize(
    ("program", "code"),
    [
        # the row that fails is one like the others
        ("import torch\nx = torch.full((64, 3), 9.0) + torch.rand(64, 3)\nprint(torch.log(torch.exp(-(x ** 2).sum(1))).sum())", "bad_data"),
        # a sum of 0 whose terms are not
        ("import torch\nx = torch.tensor([2.0, -2.0])\nprint(1 / x.sum())", "constant_input"),
        # two equal elements are not the same one
        ("import torch\nx = torch.ones(2, 2, requires_grad=True)\n(x[0] - x[1]).pow(2).sum().sqrt().backward()\nprint(x.grad)", "itself"),
        # two numbers of that value: no single one is to blame
        (SETTINGS.format(expression="step + o.offset", offset=0) + "    other: dict = None\nclass Old:\n    offset: int = 0\n", "setting"),
        # an eigenvalue that is truly negative
        ("import torch\nprint(torch.sqrt(torch.linalg.eigvalsh(torch.tensor([[1.0, 0], [0, -1.0]]))))", "cancellation"),
    ],
)  # fmt: skip
def test_root_is_not_made_up(program: str, code: str, programs: ForkServer, tmp_path: Path) -> None:
    found = first(programs, tmp_path, program) or ("", "")
    assert code != found[0]
    assert code not in found[1]


@pytest.mark.parametrize(
    "program", [MASKED.format(kept=True), TARGETS.format(change="labels[1] = 2"), ROWS.format(value=3.0)]
)  # fmt: skip
def test_healthy_look_alikes(program: str, programs: ForkServer, tmp_path: Path) -> None:
    assert first(programs, tmp_path, program) is None

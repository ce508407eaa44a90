"""Where no change of a line mends it: the sentence that an expert would say, with the numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.repair.bundles import advice, unpacked, verified
from tests.repair.forked import RepairServer

START = """
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(3, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
"""
PROGRAMS = {
    "correlations that contradict each other": (
        START
        + """
R = torch.tensor([[1.0, 0.9, -0.9], [0.9, 1.0, 0.9], [-0.9, 0.9, 1.0]])
for step in range(3):
    L = torch.linalg.cholesky(R * net(torch.ones(3)).exp().sum())
    loss = L.diagonal().log().sum()
    LOOP
""",
        ["the smallest eigenvalue of the matrix is -", "no small multiple of the identity mends it"],
    ),
    "a density that cannot have drawn it": (
        START
        + """
spread = torch.tensor(0.02)
seen = torch.ones(4, 3)
action = torch.tensor([[3.0], [3.1], [2.9], [-3.0]])  # drawn from wherever
optimizer.param_groups[0]["lr"] = 1e-5
before = torch.distributions.Normal(net(seen)[:, :1].detach(), spread).log_prob(action)
for step in range(3):
    now = torch.distributions.Normal(net(seen)[:, :1], spread)
    loss = -torch.exp(now.log_prob(action) - before).mean()
    LOOP
""",
        ["under that density what was drawn is impossible", "`logaddexp` over its parts"],
    ),
    "a split that is empty": (
        START
        + """
x = torch.randn(20, 3)
for step in range(3):
    loss = net(x).square().mean()
    LOOP
old = x[:, 0] > 50
print("loss of the old", net(x[old]).square().mean().item())
""",
        ["there is nothing to average", "look at what chose them: a filter, a split"],
    ),
    "a column without a number": (
        START
        + """
x = torch.randn(20, 3)
x[:, 1] = float("nan")
for rows in torch.arange(20).split(5):
    loss = net(x[rows]).square().mean()
    LOOP
""",
        ["column 1 holds no number in any of 5 rows"],
    ),
    "a weight that was never set": (
        START
        + """
WEIGHT = float("nan")
for step in range(3):
    loss = net(torch.randn(4, 3)).square().mean() * WEIGHT
    LOOP
""",
        ["the number itself is NaN", "never set"],
    ),
    "a perplexity of a sum": (
        START
        + """
total = 0.0
for step in range(3):
    loss = nn.functional.cross_entropy(net(torch.randn(80, 3)), torch.randint(0, 2, (80,)), reduction="sum")
    LOOP
    total += loss.detach()
print("perplexity", torch.exp(total).item())
""",
        ["is too large for an exponential (float32 ends at exp(88.7))", "the mean loss"],
    ),
    "a transition that the table forbids": (
        START
        + """
may = torch.tensor([1.0, 0.0])
allowed = torch.log(may)
for step in range(3):
    score = (net(torch.randn(4, 3)) + allowed).log_softmax(1)
    seen = score[:, step // 2]
    loss = -torch.logsumexp(seen, 0)
    LOOP
""",
        ["`may` says that this is impossible (1 of 2 entries are 0), and step 2 asks for it"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_sentence_of_an_expert(repairs: RepairServer, tmp_path: Path, name: str) -> None:
    text, said = PROGRAMS[name]
    found = repairs.fix(unpacked(tmp_path, text))
    assert verified(found) == (None, [])
    assert [part for part in said if part not in advice(found)] == []


SHOWN = {
    "a relative error": (
        """
y = torch.tensor([0.0, 2.0, 4.0, 0.0])
guess = net(torch.ones(4, 3)).detach()[:, 0]
print("error", ((guess - y).abs() / y.abs()).mean().item())
""",
        "leave_out_zeros",
        ['print("error", ((guess - y).abs() / y.abs())[y != 0].mean().item())'],
    ),
    "a temperature that runs down": (
        """
FIRST, LESS = 0.5, 0.25


def heat(step):
    return FIRST - LESS * step


for step in range(4):
    pick = nn.functional.gumbel_softmax(net(torch.randn(5, 3)), tau=heat(step))
    loss = (pick - 0.5).square().mean()
    LOOP
""",
        "schedule_floor",
        ["    return max(FIRST - LESS * step, 0.05)"],
    ),
}


@pytest.mark.parametrize("name", SHOWN)
def test_what_has_no_value_is_left_out(repairs: RepairServer, tmp_path: Path, name: str) -> None:
    text, kind, lines = SHOWN[name]
    assert verified(repairs.fix(unpacked(tmp_path, START + text))) == (kind, lines)

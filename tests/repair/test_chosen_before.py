"""Shares of what underflowed, and what is left out, chosen or normalised before the arithmetic."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.repair.bundles import unpacked, verified
from tests.repair.forked import RepairServer

SHARES = {
    "responsibilities from a method": (
        """
import torch

class Mixture:
    def __init__(self):
        self.pi, self.mu = torch.tensor([0.5, 0.5]), torch.tensor([-2.0, 2.0])

    def densities(self, x):
        d = (x[:, None] - self.mu) ** 2
        return self.pi * torch.exp(-0.5 * d)

    def step(self, x):
        p = self.densities(x)
        r = p / p.sum(dim=1, keepdim=True)
        self.pi, self.mu = r.mean(0), (r * x[:, None]).sum(0) / r.sum(0)

x = torch.cat([torch.linspace(-3, 3, 30), torch.tensor([80.0])])
model = Mixture()
for step in range(4):
    model.step(x)
print(model.mu)
""",
        "softmax_of_logs",
        [
            "    def log_densities(self, x):",
            "        return self.pi.log() - 0.5 * d",
            "        log_p = self.log_densities(x)",
            "        r = torch.softmax(log_p, dim=1)",
        ],
    ),
    "densities in a list": (
        """
import torch

def density(x, mu):
    return torch.exp(-((x - mu) ** 2))

x, mu = torch.cat([torch.linspace(-3, 3, 30), torch.tensor([80.0])]), torch.tensor([-2.0, 2.0])
pi = torch.tensor([0.5, 0.5])
for step in range(4):
    p = torch.stack([pi[k] * density(x, mu[k]) for k in range(2)], dim=1)
    share = p / p.sum(dim=1, keepdim=True)
    pi, mu = share.mean(0), (share * x[:, None]).sum(0) / share.sum(0)
print(pi, mu)
""",
        "softmax_of_logs",
        [
            "    share = torch.softmax(torch.stack([pi[k].log() + log_density(x, mu[k]) for k in range(2)], dim=1), dim=1)",
        ],
    ),
    "weights of particles": (
        """
import torch

torch.manual_seed(0)
where, w = torch.randn(50), torch.full((50,), 0.02)
for step in range(9):
    seen = torch.tensor(40.0 if step == 5 else 0.3)
    w = w * torch.exp(-0.5 * ((seen - where) / 0.2) ** 2)
    w = w / w.sum()
    print((w * where).sum())
""",
        "softmax_of_logs",
        [
            "    log_w = w.log() - 0.5 * ((seen - where) / 0.2) ** 2",
            "    w = torch.softmax(log_w, dim=0)",
        ],
    ),
    "a weighted mean": (
        """
import torch

x = torch.linspace(0, 1, 40)
q, width = torch.tensor([0.2, 0.7, 3.0]), torch.tensor(0.05, requires_grad=True)
optimizer = torch.optim.SGD([width], lr=1e-6)
for step in range(3):
    w = torch.exp(-(((q[:, None] - x) / width) ** 2))
    got = (w @ torch.sin(6 * x)[:, None]) / w.sum(dim=1, keepdim=True)
    loss = got.square().mean()
    LOOP
""",
        "shift_by_max",
        [],
    ),
}
CHOSEN = {
    "a direction": (
        """
import torch

torch.manual_seed(0)
p, turn = torch.randn(30, 2), torch.zeros(1, requires_grad=True)
optimizer = torch.optim.SGD([turn], lr=0.01)
for step in range(3):
    p[7] = 1.0 if step < 2 else 0.0
    heading = torch.atan(p[:, 1] / p[:, 0]) + turn
    loss = heading.square().mean()
    LOOP
""",
        "atan2",
        ["    heading = torch.atan2(p[:, 1], p[:, 0]) + turn"],
    ),
    "cells without a measurement": (
        """
import torch

torch.manual_seed(0)
w = torch.randn(3, requires_grad=True)
x = torch.randn(20, 3)
heat = x.sum(1)
heat[4] = 1e20
sea = heat < 1e19
optimizer = torch.optim.SGD([w], lr=0.01)
for step in range(3):
    error = (x @ w - heat) ** 2
    loss = (error * sea).sum() / sea.sum()
    LOOP
print(loss)
""",
        "select_before",
        ["    error = torch.where(sea != 0, x @ w - heat, 0.0) ** 2"],
    ),
    "the largest of nothing": (
        """
import torch

torch.manual_seed(0)
net, top = torch.nn.Linear(4, 3), torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD([*net.parameters(), *top.parameters()], lr=0.1)
x, pad = torch.randn(5, 6, 4), torch.rand(5, 6) > 0.6
pad[3] = True
for step in range(3):
    pooled = net(x).masked_fill(pad[..., None], -torch.inf).max(dim=1).values
    loss = top(pooled).square().mean()
    LOOP
""",
        "empty_row",
        ["    pooled = pooled.masked_fill(pooled == -torch.inf, 0.0)"],
    ),
    "a mask in half precision": (
        """
import torch
from torch import nn

torch.manual_seed(0)

class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 6)
        self.register_buffer("low", torch.tensor(-1e9))

    def forward(self, x, mask):
        bias = (1.0 - mask) * self.low
        return torch.softmax(self.net(x) + bias, dim=-1)

mask = torch.tensor([[1.0, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 1]]).half()
model = Scorer().half().eval()
with torch.no_grad():
    print(model(torch.randn(2, 4).half(), mask))
""",
        "masked_fill",
        [
            "        bias = torch.zeros_like(mask).masked_fill(mask == 0, torch.finfo(mask.dtype).min)",
        ],
    ),
    "a teacher's probabilities": (
        """
import torch

torch.manual_seed(0)
p = torch.tensor([[0.5, 0.5, 0.0], [0.2, 0.8, 0.0]])
net, x = torch.nn.Linear(4, 3), torch.randn(2, 4)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    log_q = net(x).log_softmax(-1)
    loss = (p * (p.log() - log_q)).sum(-1).mean()
    LOOP
print(loss)
""",
        "xlogy",
        ["    loss = (torch.xlogy(p, p) - p * log_q).sum(-1).mean()"],
    ),
    "the entropy of what is allowed": (
        """
import torch

torch.manual_seed(0)
net, x = torch.nn.Linear(4, 3), torch.randn(2, 4)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
allowed = torch.tensor([[True, True, False], [True, True, True]])
for step in range(3):
    p = torch.softmax(net(x).masked_fill(~allowed, -torch.inf), dim=-1)
    logp = torch.log(p)
    loss = (p * logp).sum(-1).mean()
    LOOP
""",
        "log_softmax+where_weighted",
        ["    loss = (p * torch.where(p == 0, 0.0, logp)).sum(-1).mean()"],
    ),
    "a class that occurs nowhere": (
        """
import torch

torch.manual_seed(0)
true, found = torch.randint(0, 3, (50,)), torch.randint(0, 3, (50,))
table = torch.bincount(true * 4 + found, minlength=16).view(4, 4).float()
both = table.diag()
either = table.sum(0) + table.sum(1) - both
score = both / either
print(score.mean())
""",
        "nan_aware",
        ["print(score.nanmean())"],
    ),
    "similarities in half precision": (
        """
import torch

torch.manual_seed(0)
a, b = (torch.randn(20, 64) * 60).half(), (torch.randn(30, 64) * 60).half()
dots = a @ b.T
long = a.norm(dim=1)
print(dots / (long[:, None] * b.norm(dim=-1)[None, :]))
""",
        "normalize",
        [
            "print(torch.nn.functional.normalize(a.float(), dim=-1) @ torch.nn.functional.normalize(b.float(), dim=-1).T)",
        ],
    ),
}
PROGRAMS = {**SHARES, **CHOSEN}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_form_of_an_expert(repairs: RepairServer, tmp_path: Path, name: str) -> None:
    text, kind, lines = PROGRAMS[name]
    found = repairs.fix(unpacked(tmp_path, text))
    changed, added = verified(found)
    assert changed == kind, found["fixes"]
    assert all(line in added for line in lines), added


def test_nothing_counted_has_no_logarithm(repairs: RepairServer, tmp_path: Path) -> None:
    text = """
import torch

counts = torch.tensor([[1.0, 2.0], [0.0, 0.0], [3.0, 1.0]])
w = torch.ones(2, requires_grad=True)
optimizer = torch.optim.SGD([w], lr=0.1)
for step in range(3):
    share = counts / counts.sum(1, keepdim=True)
    loss = (share * w).square().sum()
    LOOP
"""
    assert verified(repairs.fix(unpacked(tmp_path, text)))[0] == "clamp_denominator"


def test_a_ratio_of_heights_is_no_direction(repairs: RepairServer, tmp_path: Path) -> None:
    text = """
import torch

w = torch.ones(3, requires_grad=True)
x, y = torch.tensor([1.0, 2.0, 0.0]), torch.tensor([1.0, 1.0, 0.0])
optimizer = torch.optim.SGD([w], lr=0.1)
for step in range(3):
    loss = (torch.tanh(y / x) * w).square().sum()
    LOOP
"""
    assert all("atan2" not in (f["patch"] or "") for f in repairs.fix(unpacked(tmp_path, text))["fixes"])  # fmt: skip

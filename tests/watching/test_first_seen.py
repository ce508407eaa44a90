"""What went bad early and is said late is explained by what was seen of it first, without a second run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness import ForkServer

FIELD = """
import torch
torch.manual_seed(4)
c = 0.5 + 0.05 * torch.randn(64)
keep, history = torch.ones({turns}, 64), []
keep[{at}, 20:24] = 0
for step in range({turns}):
    c.requires_grad_(True)
    mix = torch.where(c > 0, c * torch.log(c), torch.zeros_like(c))  # HERE
    energy = (mix + (c.roll(1) - c) ** 2).sum()
    mu, = torch.autograd.grad(energy, c)
    with torch.no_grad():
        c = (c - 0.002 * (mu - mu.mean())).clamp(0.0, 1.0) * keep[step]
    history.append(energy.item())
print("energy", history[0], history[-1])
"""
LATE = {
    "a field, at first": (FIELD.format(at=1, turns=150), 2),
    "a field, in the middle": (FIELD.format(at=219, turns=300), 220),
    "an update by hand, of finite gradients": (
        """
import torch
torch.manual_seed(8)
x, y = torch.randn(32, 4), torch.randn(32, 1)
p = {"a": torch.randn(4, 8) * 0.3, "b": torch.randn(8, 1) * 0.3}
s = {k: torch.zeros_like(v) for k, v in p.items()}
losses = []
for t in range(300):
    p = {k: v.detach().requires_grad_() for k, v in p.items()}
    loss = ((torch.tanh(x @ p["a"]) @ p["b"] - y) ** 2).mean()
    grads = torch.autograd.grad(loss, list(p.values()))
    new = {}
    for (k, v), g in zip(p.items(), grads):
        g = g * (t != 150)
        s[k] = (0.9 * s[k] + 0.1 * g ** 2) * (t != 150)
        new[k] = v.detach() - 1e-2 * g / s[k].sqrt()  # HERE
    p = new
    losses.append(loss.item())
print("last loss", losses[-1])
""",
        None,  # told as the turn after it
    ),
    "a field of which only its peak is read": (
        """
import torch
u, peak = torch.full((64,), 0.2), []
for turn in range(4000):
    flux = u.pow(1.5)  # HERE
    u = u + 0.3 * (flux.roll(1) - 2 * flux + flux.roll(-1))
    if turn == 3000:
        u[5] = -0.01
    peak.append(u.max().item())
print("last peak", peak[-1])
""",
        0,
    ),
    "between two calls of a model": (
        """
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(5, 16), nn.SiLU(), nn.Linear(16, 4))
abar = torch.cumprod(1 - torch.linspace(1e-4, 0.08, 200), 0)
x = torch.randn(8, 4)
with torch.no_grad():
    for t in reversed(range(1, 200)):
        eps = net(torch.cat([x, torch.full((8, 1), t / 200)], 1))
        x0 = (x - (1 - abar[t]).sqrt() * eps) / abar[t].sqrt()
        sigma = 1.6 * ((1 - abar[t - 1]) / (1 - abar[t])).sqrt() * (1 - abar[t] / abar[t - 1]).sqrt()
        rest = torch.sqrt(1 - abar[t - 1] - sigma ** 2)  # HERE
        x = abar[t - 1].sqrt() * x0.clamp(-3, 3) + rest * eps + sigma * torch.randn_like(x)
print("mean", x.mean().item())
""",
        0,
    ),
    "leaves that are made anew": (
        """
import torch
torch.manual_seed(1)
x, kept = torch.randn(16, 2), []
for i in range(400):
    x = x.detach().requires_grad_(True)
    energy = (x * (i != 250)).pow(2).sum(-1).sqrt().sum()  # HERE
    score = torch.autograd.grad(energy, x)[0]
    x = x - 0.01 * score + 0.1 * torch.randn_like(x)
    kept.append(float(energy))
print("energy", sum(kept) / len(kept))
""",
        250,
    ),
}
HEALTHY = {
    "a sampler that rejects": """
import math, torch
torch.manual_seed(0)
x, kept = torch.tensor([0.5]), []
def density(x): return torch.log(x) - x
for i in range(3000):
    proposed = x + 0.8 * torch.randn(1)
    ratio = (density(proposed) - density(x)).item()
    if not math.isnan(ratio) and math.log(torch.rand(1).item()) < ratio:
        x = proposed
    kept.append(x.item())
print("mean", sum(kept) / len(kept))
""",
    "an update by hand that leaves bad rows out": """
import torch
torch.manual_seed(3)
x, y = torch.randn(300, 8, 3), torch.randn(300, 8)
y[::7] = float("nan")
y[150:170] = float("nan")
w, losses = torch.zeros(3), []
for turn in range(300):
    w = w.detach().requires_grad_()
    loss = ((x[turn] @ w - y[turn]) ** 2).mean()
    g, = torch.autograd.grad(loss, w)
    losses.append(loss.item())
    if torch.isfinite(g).all():
        w = w - 0.05 * g
print("weights", w.tolist())
""",
    "a field that is begun anew": """
import torch
torch.manual_seed(2)
u, kept = torch.ones(4), []
for i in range(3000):
    u = u * 0.5
    value = (u / (u.sum() - 0.25)).mean().item()
    kept.append(value)
    if value != value or abs(value) > 1e6:
        u = torch.ones(4) + torch.rand(4)
print("last", u.mean().item(), len(kept))
""",
}


@pytest.mark.parametrize("name", LATE)
def test_the_first_sight_of_it_explains_the_last_word(
    name: str, tmp_path: Path, programs: ForkServer
) -> None:
    text, step = LATE[name]
    script = tmp_path / "script.py"
    script.write_text(text)
    result = programs.run(script, mode="auto", rerun=False)
    assert result.report is not None
    (found, *_) = result.report["anomalies"]
    line = next(i for i, row in enumerate(text.splitlines(), 1) if row.endswith("# HERE"))
    assert found["location"]["line"] == line
    assert step in (None, found["step"])


@pytest.mark.parametrize("name", HEALTHY)
def test_what_ends_well_is_left_alone(name: str, tmp_path: Path, programs: ForkServer) -> None:
    script = tmp_path / "script.py"
    script.write_text(HEALTHY[name])
    result = programs.run(script, mode="auto")
    assert result.code == 0
    assert result.stdout == programs.run(script, traced=False).stdout

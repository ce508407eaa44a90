"""Guards that keep what a number means, data that is no data, and what only a sentence can mend."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.repair.bundles import advice, unpacked, verified
from tests.repair.forked import RepairServer

START = """
import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, {outputs})
optimizer = torch.optim.SGD(model.parameters(), lr={lr})
"""
PROGRAMS = {
    "a last batch of one sample is left out by the loader": (
        START.format(outputs=3, lr=0.01)
        + """
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(41, 4))
for (x,) in DataLoader(data, batch_size=8, shuffle=True):
    z = model(x)
    z = (z - z.mean(0)) / (z.std(0) + 1e-5)
    loss = ((z.T @ z / len(z)) - torch.eye(3)).square().sum()
    LOOP
""",
        "drop_last",
        ["for (x,) in DataLoader(data, batch_size=8, shuffle=True, drop_last=True):"],
    ),
    "a divisor that may have either sign gets no floor": (
        START.format(outputs=1, lr=0.01)
        + """
nn.init.zeros_(model.weight)
nn.init.zeros_(model.bias)
for step in range(4):
    rate = model(torch.randn(16, 4)).sigmoid()
    near = (rate - 0.5).abs() < 0.01
    closed = torch.log(torch.atanh(1 - 2 * rate) / (1 - 2 * rate))
    loss = torch.where(near, (rate - 0.5) ** 2, closed).mean()
    LOOP
""",
        None,
        [],
    ),
    "a variance that rounding made negative is 0, before the eps that is there": (
        """
import torch
from torch import nn

torch.manual_seed(0)
eps = 1e-8
model = nn.Linear(3, 1)
state = {p: [torch.zeros_like(p), torch.zeros_like(p)] for p in model.parameters()}
x = torch.rand(8, 3)
for step in range(200):
    loss = (0.1 - 0.37 * model(x)).mean()  # a gradient that never changes
    model.zero_grad()
    loss.backward()
    with torch.no_grad():
        for p, (square, mean) in state.items():
            square.mul_(0.9).addcmul_(p.grad, p.grad, value=0.1)
            mean.mul_(0.9).add_(p.grad, alpha=0.1)
            p.add_(p.grad / (square - mean ** 2).sqrt().add_(eps), alpha=-1e-9)
""",
        "positive_variance",
        ["            p.add_(p.grad / (square - mean ** 2).clamp(min=0).sqrt().add_(eps), alpha=-1e-9)"],
    ),
    "a class that occurs nowhere is left out of the mean": (
        START.format(outputs=3, lr=0.1)
        + """
x, y = torch.randn(40, 4), torch.randint(0, 2, (40,))
for step in range(2):
    loss = nn.functional.cross_entropy(model(x), y)
    LOOP
with torch.no_grad():
    model.bias[2] = -100.0
    guess = model(x).argmax(1)
    scores = []
    for c in range(3):
        both = ((guess == c) & (y == c)).sum()
        either = ((guess == c) | (y == c)).sum()
        scores.append(both / either)
    print("mean IoU", torch.stack(scores).mean().item())
""",
        "nan_aware",
        ['    print("mean IoU", torch.stack(scores).nanmean().item())'],
    ),
    "both of two quotients are guarded": (
        START.format(outputs=1, lr=0.01)
        + """
for step in range(4):
    w = model(torch.randn(16, 4))[:, 0] ** 2 * (torch.rand(16) > 0.2)
    width = torch.rand(16)
    loss = (1 - torch.min(w / width, width / w)).mean()
    LOOP
""",
        "clamp_denominator",
        ["    loss = (1 - torch.min(w / width.clamp(min=1e-8), width / w.clamp(min=1e-8))).mean()"],
    ),
    "both logarithms of a proportion are guarded": (
        START.format(outputs=2, lr=0.01)
        + """
for step in range(4):
    share = torch.rand(16)
    share[3] = 0.0 if step == 2 else 0.5
    a, b = nn.functional.softplus(model(torch.randn(16, 4))).unbind(-1)
    loss = -(a * share.log() + b * (1 - share).log()).mean()
    LOOP
""",
        "clamp_argument",
        ["    loss = -(a * share.clamp(1e-6, 1 - 1e-6).log() + b * (1 - share.clamp(1e-6, 1 - 1e-6)).log()).mean()"],
    ),
    "degrees of a graph count": (
        START.format(outputs=2, lr=0.01)
        + """
for step in range(4):
    links = (torch.rand(8, 8) > 0.5).float()
    links[2] = 0 if step == 2 else 1
    d = links.sum(dim=1).pow(-0.5)
    loss = (d[:, None] * links * d @ model(torch.randn(8, 4))).square().mean()
    LOOP
""",
        "clamp_count",
        ["    d = links.sum(dim=1).clamp(min=1).pow(-0.5)"],
    ),
    "the nearest rotation asks for no singular vectors": (
        START.format(outputs=9, lr=0.01)
        + """
for step in range(4):
    m = model(torch.randn(5, 4)).reshape(5, 3, 3)
    m = m if step != 2 else m * 0 + torch.eye(3)
    u, s, vh = torch.linalg.svd(m)
    loss = (u @ vh)[:, 0, 0].mean()
    LOOP
""",
        "polar_iteration",
        [
            "    polar = m",
            "    for _ in range(20):",
            "        polar = 0.5 * (polar + torch.linalg.inv(polar).mT)",
            "    loss = polar[:, 0, 0].mean()",
        ],
    ),
    "a rate is positive by the form of the output": (
        START.format(outputs=1, lr=0.05)
        + """
for step in range(20):
    rate = model(torch.randn(16, 4).abs() + step).squeeze(1)
    loss = (rate - 0.05 * torch.log(rate)).mean() if step > 0 else rate.sum() * 3
    LOOP
print(loss.item())
""",
        "softplus_output",
        ["    rate = (torch.nn.functional.softplus(model(torch.randn(16, 4).abs() + step)) + 1e-6).squeeze(1)"],
    ),
    "a variance is no rectified output": (
        START.format(outputs=2, lr=0.01)
        + """
for step in range(6):
    model.bias.data[1] = 3 if step < 4 else -3
    mean, raw = model(torch.randn(16, 4)).unbind(1)
    var = torch.relu(raw)
    loss = (torch.log(var) + (mean - 1) ** 2 / var).mean()
    LOOP
""",
        "softplus_output",
        ["    var = torch.nn.functional.softplus(raw) + 1e-4"],
    ),
    "a constant column is divided by 1": (
        START.format(outputs=1, lr=0.01)
        + """
x = torch.randn(40, 4)
x[:, 2] = 3.0
spread = x.std(0)
x = (x - x.mean(0)) / spread
for step in range(4):
    loss = (model(x).squeeze(1) - 1).square().mean()
    LOOP
""",
        "unit_spread",
        ["x = (x - x.mean(0)) / torch.where(spread > 1e-5, spread, 1.0)"],
    ),
    "a flow asks for no sign": (
        START.format(outputs=4, lr=0.01)
        + """
class Mix(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.diag(torch.tensor([-1.0, 1, 1, 1])))

    def forward(self, x):
        return x @ self.weight, torch.logdet(self.weight)

mix = Mix()
for step in range(3):
    z, volume = mix(model(torch.randn(8, 4)))
    loss = z.square().mean() - volume
    LOOP
print(loss.item())
""",
        "slogdet",
        ["        return x @ self.weight, torch.linalg.slogdet(self.weight)[1]"],
    ),
    "a scale that rounds to 0 has a floor": (
        START.format(outputs=2, lr=0.01)
        + """
for step in range(6):
    mean, raw = model(torch.randn(16, 4)).unbind(1)
    scale = nn.functional.softplus(raw - (200 if step == 4 else 0))
    loss = ((mean - 1) / scale).abs().clamp(max=5).mean() + scale.mean()
    LOOP
""",
        "positive_floor",
        ["    scale = nn.functional.softplus(raw - (200 if step == 4 else 0)) + 1e-3"],
    ),
    "the mark of a missing value is no measurement": (
        START.format(outputs=1, lr=0.001)
        + """
x = torch.randn(60, 4)
y = x.sum(1)
x[33, 1] = 1e30
data = torch.utils.data.TensorDataset(x, y)
for xb, yb in torch.utils.data.DataLoader(data, batch_size=12):
    loss = (model(xb).squeeze(1) - yb).square().mean()
    LOOP
""",
        "drop_fill_values",
        ["measured = (x != 1e30).all(dim=1)", "x, y = x[measured], y[measured]"],
    ),
    "an exponent is bounded where it is made": (
        START.format(outputs=2, lr=1e-4)
        + """
spread = nn.Linear(4, 2)
spread.weight.data[:, 3] = 0.7
optimizer = torch.optim.SGD([*model.parameters(), *spread.parameters()], lr=1e-4)
for step in range(8):
    x = torch.randn(8, 4)
    x[0, 3] = 150.0 if step == 3 else 0.0
    mean, log_var = model(x), spread(x)
    z = mean + torch.exp(0.5 * log_var) * torch.randn(8, 2)
    loss = (z**2).mean() + (log_var.exp() - log_var).mean()
    LOOP
""",
        "clamp_exponent",
        ["    mean, log_var = model(x), spread(x).clamp(-10, 10)"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_change_keeps_the_meaning(repairs: RepairServer, tmp_path: Path, name: str) -> None:
    text, kind, lines = PROGRAMS[name]
    assert verified(repairs.fix(unpacked(tmp_path, text))) == (kind, lines)


def test_rows_of_inputs_and_targets_go_together(repairs: RepairServer, tmp_path: Path) -> None:
    text = """
    import torch
    from data import read
    from torch import nn

    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x, y = read()
    for step in range(3):
        loss = (model(x).squeeze(1) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    --- data.py
    import io

    import numpy as np
    import torch


    def read():
        table = np.genfromtxt(io.StringIO("1,2,3,1\\n2,,1,0\\n0,1,1,1\\n3,1,0,0"), delimiter=",")
        table = table.astype(np.float32)
        return torch.from_numpy(table[:, :3]), torch.from_numpy(table[:, 3])
    """
    kind, added = verified(repairs.fix(unpacked(tmp_path, text)))
    assert (kind, added) == ("drop_rows", ["    table = table[np.isfinite(table).all(axis=1)]"])


def test_nothing_forbidden_is_drawn(repairs: RepairServer, tmp_path: Path) -> None:
    """All actions masked: the state is the fault, and a finite mask would make a move of it."""
    text = """
    import torch
    from torch import nn

    torch.manual_seed(0)
    policy = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.05)
    for step in range(5):
        legal = torch.rand(5, 3) > 0.3
        legal[:, 0] = True
        if step == 3:
            legal[2] = False
        logits = policy(torch.randn(5, 4)).masked_fill(~legal, float("-inf"))
        choice = torch.distributions.Categorical(logits=logits)
        loss = -choice.log_prob(choice.sample()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    """
    found = repairs.fix(unpacked(tmp_path, text))
    assert verified(found) == (None, [])
    assert "in row 2 every choice is masked" in advice(found)


def test_a_faulty_formula_is_not_mended_by_the_rate(repairs: RepairServer, tmp_path: Path) -> None:
    text = """
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(6):
        x = torch.randn(16, 4) * (1 if step < 4 else 9)
        loss = (torch.log(model(x) + 3.0) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    """
    found = repairs.fix(unpacked(tmp_path, text))
    assert found["anomaly"] == "log_nonpositive"
    assert "lower_lr" not in {f["kind"] for f in found["fixes"]}

"""Numbers that were loaded negative where none can be; settings and missing bounds as causes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.harness import ForkServer

HEAD = """\
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 1))
x = torch.randn(16, 4)
"""
VARIANCE = """
state = net.state_dict()
state["1.running_var"] = state["1.running_var"].index_fill(0, torch.tensor([2]), -0.3)
torch.save(state, "net.pt")
net.load_state_dict(torch.load("net.pt"))
net.eval()
with torch.no_grad():
    print(net(x).mean().item())
"""
MOMENTS = """
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
net(x).square().mean().backward()
optimizer.step()
state = optimizer.state_dict()
state["state"][0]["exp_avg_sq"][1, 2] = -9.0
optimizer.load_state_dict(state)
for step in range(5):
    optimizer.zero_grad()
    net(x).square().mean().backward()
    optimizer.step()
"""
RATE = """
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
y = torch.ones(16, 1)
for step in range(3):
    rate = net(x)
    loss = (rate - y * torch.log(rate)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
"""


def first(programs: ForkServer, folder: Path, text: str) -> dict[str, Any]:
    script = folder / "script.py"
    script.write_text(HEAD + text)
    report = programs.run(script, cwd=folder, mode="auto").report
    assert report is not None
    found: dict[str, Any] = report["anomalies"][0]
    return found


def test_a_variance_that_was_loaded_negative(programs: ForkServer, tmp_path: Path) -> None:
    found = first(programs, tmp_path, VARIANCE)
    assert found["mechanism"] == "sqrt_negative"
    assert "buffer 1.running_var = -0.3" in found["headline"]
    cause = found["causes"][0]
    assert cause["code"] == "poisoned_state"
    assert "was -0.3 when it was loaded (line 10)" in cause["evidence"]
    assert found["fixes"][0]["kind"] == "earlier_checkpoint"


def test_an_average_of_squares_that_was_loaded_negative(
    programs: ForkServer, tmp_path: Path
) -> None:
    found = first(programs, tmp_path, MOMENTS)
    assert (found["phase"], found["step"]) == ("optimizer", 1)
    assert found["location"]["source"] == "optimizer.step()"
    assert found["parameter"] == "0.weight"
    assert found["causes"][0]["code"] == "poisoned_state"
    assert found["fixes"][0]["kind"] == "earlier_checkpoint"


def test_what_nothing_keeps_above_0(programs: ForkServer, tmp_path: Path) -> None:
    found = first(programs, tmp_path, RATE)
    assert found["mechanism"] == "log_nonpositive"
    assert [cause["code"] for cause in found["causes"]] == ["unbounded"]


REJECTED = """
scale = nn.Parameter(torch.tensor([0.05, 1.0]))
optimizer = torch.optim.SGD([scale], lr=0.1)
for step in range(20):
    try:
        loss = torch.distributions.Normal(0.0, scale).log_prob(torch.zeros(2)).sum()
    except ValueError:
        with torch.no_grad():
            scale.clamp_(min=0.01)
        continue
    optimizer.zero_grad()
    (loss * 0 + scale.sum()).backward()
    optimizer.step()
"""
SCALE = """
scale = nn.Parameter(torch.tensor([0.4, 1.0]))
optimizer = torch.optim.SGD([scale], lr=0.2)
for step in range(60):
    if step > 20:
        spread = scale * 1
    else:
        spread = scale.clamp(min=0.01)
    loss = -torch.distributions.Normal(0.0, scale=spread).log_prob(torch.zeros(2)).sum()
    optimizer.zero_grad()
    (loss * 0 + scale.sum() * 0.1).backward()
    optimizer.step()
"""
TRAINED = SCALE.replace("spread = scale * 1", "spread = scale")
ROUNDS = """
field = nn.Linear(4, 4)
for step in range(2):
    h = x
    for _ in range(30):
        h = h + field(h) ** 2 + 1
    loss = h.mean()
    loss.backward()
    torch.optim.SGD(field.parameters(), lr=0.1).step()
"""
FROM_0 = """
start = 0.0
near = (x[:, None] - x[:3]).norm(dim=-1)
ratio = (near - start).sin() / (near - start)
loss = (ratio.sum(1, keepdim=True) * net(x)).mean()
loss.backward()
torch.optim.SGD(net.parameters(), lr=0.1).step()
"""
DEBIAS = """
seen = 0
weight = torch.tensor(1 - 0.9 ** seen)
loss = (net(x) / weight).mean()
loss.backward()
torch.optim.SGD(net.parameters(), lr=0.1).step()
"""
WIDE = """
def widen(layer):
    nn.init.normal_(layer.weight, std=1 / max(layer.in_features - 4, 1e-40))
widen(net[0])
loss = net(x).mean()
loss.backward()
torch.optim.SGD(net.parameters(), lr=0.1).step()
"""
ALONE = """
gain = torch.tensor([3.0])
loss = (net(x) * (gain - gain.mean()) / gain.std()).mean()
loss.backward()
torch.optim.SGD(net.parameters(), lr=0.1).step()
"""
CAUSES = {
    "an argument that is computed": (WIDE, "computed", "gave 1e+40 as std"),
    "one value": (ALONE, "too_few_values", "two are needed"),
    "a parameter as it was trained": (TRAINED, "unbounded", "it is trained, and nothing keeps it above 0"),
    "what was made of one": (SCALE, "unbounded", "`scale * 1` gave -"),
    "a recurrence": (ROUNDS, "growing_values", "rounds of this line"),
    "the distance from itself": (FROM_0, "cancellation", "the same element is taken from itself"),
    "a number of Python's": (DEBIAS, "computed", "`1 - 0.9 ** seen` gave 0"),
}  # fmt: skip


@pytest.mark.parametrize("name", CAUSES)
def test_the_cause_is(programs: ForkServer, tmp_path: Path, name: str) -> None:
    text, cause, words = CAUSES[name]
    found = first(programs, tmp_path, text)["causes"][0]
    assert found["code"] == cause
    assert words in found["evidence"]


def test_a_scale_that_is_refused_and_mended_is_no_harm(
    programs: ForkServer, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(HEAD + REJECTED)
    result = programs.run(script, cwd=tmp_path, mode="auto")
    assert result.code == 0
    assert result.report is not None
    assert result.report["anomalies"] == []

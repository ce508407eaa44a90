"""Numbers that were loaded negative where none can be; settings and missing bounds as causes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
state["state"][0]["exp_avg_sq"][1, 2] = -1e-4
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
raise SystemExit(int(loss.isnan()))
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
    assert "was -0.3 when it was loaded (line 9)" in cause["evidence"]
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

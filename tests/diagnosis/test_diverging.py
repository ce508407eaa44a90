"""A run that diverged is told as that: the learning rate, and then where it showed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness import ForkServer

SCRIPT = """
import torch
from torch import nn
torch.manual_seed(0)
x = torch.randn(512, 10)
y = x @ torch.randn(10, 1)
x[:64] *= SIZE
net = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
for epoch in range(10):
    for i in range(0, 512, 64):
        loss = nn.functional.mse_loss(net(x[i:i + 64]), y[i:i + 64])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""

ADAPTER = """
import torch
from torch import nn
torch.manual_seed(0)
x = torch.randn(64, 16)
y = torch.randn(64, 1) * 4
base, down, up = nn.Linear(16, 1), nn.Linear(16, 4, bias=False), nn.Linear(4, 1, bias=False)
nn.init.zeros_(up.weight)
base.requires_grad_(False)
optimizer = torch.optim.SGD([*down.parameters(), *up.parameters()], lr=0.3)
for step in range(40):
    loss = nn.functional.mse_loss(base(x) + 16 * up(down(x)), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def found(programs: ForkServer, folder: Path, rate: str, size: str) -> tuple[str, list[str]]:
    script = folder / "script.py"
    script.write_text(SCRIPT.replace("RATE", rate).replace("SIZE", size))
    report = programs.run(script, mode="auto").report
    assert report is not None
    first = report["anomalies"][0]
    return first["headline"], [cause["code"] for cause in first["causes"]]


@pytest.mark.parametrize("rate", ["60", "400"])
def test_a_rate_that_is_far_too_high_is_the_headline(
    rate: str, programs: ForkServer, tmp_path: Path
) -> None:
    headline, causes = found(programs, tmp_path, rate, "1")
    assert f"because training diverged: learning rate {rate} is too high (" in headline
    assert causes[0] == "high_learning_rate"


def test_a_batch_out_of_all_proportion_is_no_fault_of_the_rate(
    programs: ForkServer, tmp_path: Path
) -> None:
    headline, causes = found(programs, tmp_path, "1e-3", "1e7")
    assert "learning rate" not in headline
    assert "high_learning_rate" not in causes


def test_an_adapter_that_starts_at_0_diverges_by_its_rate(
    programs: ForkServer, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(ADAPTER)
    report = programs.run(script, mode="auto").report
    assert report is not None
    first = report["anomalies"][0]
    assert "because training diverged: learning rate 0.3 is too high" in first["headline"]
    assert first["causes"][0]["code"] == "high_learning_rate"

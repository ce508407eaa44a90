"""The first help of a report is the change that `fix` would try first, where that is what an expert would make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.harness import ForkServer

START = """
import torch
import torch.nn.functional as F

torch.manual_seed(0)
net = torch.nn.Linear(4, 8)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    x = torch.randn(6, 4)
    BODY
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
EDITS = {
    "a softmax by hand": (
        """weights = torch.exp(net(200 * x) * 50)
    loss = -torch.log(weights[:, 0] / weights.sum(dim=1)).mean()""",
        "torch.logsumexp(weights, dim=1)",
    ),
    "a root of squares": (
        "loss = (net(x) * 0).pow(2).sum(1).sqrt().mean()",
        "torch.linalg.vector_norm(net(x) * 0, dim=1)",
    ),
    "a power whose exponent is a setting": (
        """gamma = 0.5
    loss = ((net(x) * 0).abs() ** gamma).mean()""",
        "(net(x) * 0).abs().clamp(min=1e-6) ** gamma",
    ),
    "a variance and a setting": (
        """group = {"eps": 1e-8}
    mean = net(x).mean() * 0 + 1000.0
    loss = (torch.sqrt(mean * mean - 1000100.0 + group["eps"])).sum()""",
        'torch.sqrt((mean * mean - 1000100.0).clamp(min=0) + group["eps"])',
    ),
    "a number that ends at 0": (
        """width = torch.tensor(max(0.0, 1 - step / 2))
    loss = (net(x) / width).square().mean()""",
        "max(0.1, 1 - step / 2)",
    ),
}
WORDS = {
    "a weight that has to be positive": (
        "loss = torch.log(net.weight).sum() ** 2",
        "with `softplus`",
    ),
    "an exponential that overflows": ("loss = torch.exp(net(x) + 90).mean()", "largest float32"),
}


def first_of(programs: ForkServer, folder: Path, body: str) -> tuple[dict[str, Any], str]:
    (folder / "train.py").write_text(START.replace("BODY", body))
    result = programs.run(folder / "train.py")
    assert result.report is not None
    assert result.report["anomalies"], result.stderr
    first: dict[str, Any] = result.report["anomalies"][0]["fixes"][0]
    return first, result.stderr


@pytest.mark.parametrize("body", EDITS, ids=lambda b: b)
def test_it_is_an_edit_of_the_line(body: str, programs: ForkServer, tmp_path: Path) -> None:
    first, shown = first_of(programs, tmp_path, EDITS[body][0])
    assert EDITS[body][1] in (first["patch"] or ""), first
    assert first["verdict"] == "not_tried"
    assert EDITS[body][1][:20] in shown
    assert "`whynan fix train.py` tries it" in shown


@pytest.mark.parametrize("body", WORDS, ids=lambda b: b)
def test_no_bound_hides_the_fault(body: str, programs: ForkServer, tmp_path: Path) -> None:
    first, shown = first_of(programs, tmp_path, WORDS[body][0])
    assert first["patch"] is None
    assert ".clamp" not in first["title"]
    assert WORDS[body][1] in " ".join(shown.split())


def test_inputs_that_were_never_scaled_are_scaled_first(
    programs: ForkServer, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("""
import torch

torch.manual_seed(0)
X = torch.stack([torch.rand(64) * 200, torch.rand(64) * 90], dim=1)
y = X @ torch.tensor([[3.0], [1.0]])
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
for epoch in range(60):
    loss = ((model(X) - y) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""")
    report = programs.run(tmp_path / "train.py", mode="auto").report
    assert report is not None
    first, second = report["anomalies"][0]["fixes"][:2]
    assert "X = ((X - mean)" in first["patch"]
    assert second["kind"] == "lower_lr"
    assert "inputs that are not scaled" in report["anomalies"][0]["headline"]


def test_the_line_that_sets_the_rate_is_named(programs: ForkServer, tmp_path: Path) -> None:
    body = """for group in optimizer.param_groups:
        group["lr"] = 0.1 * float("nan")
    loss = net(x).square().mean()"""
    first, shown = first_of(programs, tmp_path, body)
    assert 'train.py:11 sets lr, `group["lr"] = 0.1 * float("nan")`' in first["title"]
    assert "`optimizer.step()` ran with lr = NaN" in " ".join(shown.split())


def test_a_file_that_was_edited_since_is_left_alone(programs: ForkServer, tmp_path: Path) -> None:
    body = """if step == 0:
        text = open(__file__).read().replace("net(x) * 0", "net(x) * 3")
        open(__file__, "w").write(text)
    loss = (net(x) * 0).pow(2).sum(1).sqrt().mean()"""
    first, _ = first_of(programs, tmp_path, body)
    assert first["patch"] is None

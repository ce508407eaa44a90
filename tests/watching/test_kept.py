"""What must still be there when harm is explained: an old origin, a counter that counted on, an average."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.harness import ForkServer, Result

STORED = """
import torch
torch.manual_seed(0)
net = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
kept = []
for step in range(40):
    s = torch.rand(4, 3)
    if step == 15:
        s[1] = 0.0
    kept.append((s, torch.log(s.sum(1, keepdim=True))))
    s, target = kept[max(0, step - 10)]
    loss = (net(s) - target).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

COUNTED = """
import torch
n = torch.zeros(())
mean = torch.ones(3) / n
n += 1
print("mean", mean.tolist())
"""

AVERAGED = """
import torch
torch.manual_seed(0)
net, average = torch.nn.Linear(4, 1), torch.nn.Linear(4, 1).requires_grad_(False)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
n = torch.zeros(())
for step in range(12):
    x = torch.randn(16, 4)
    loss = (net(x) - x.sum(1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for a, p in zip(average.parameters(), net.parameters()):
            UPDATE
        n += 1
print("loss", loss.item())
"""


def run(programs: ForkServer, folder: Path, text: str) -> Result:
    script = folder / "script.py"
    script.write_text(textwrap.dedent(text))
    return programs.run(script, cwd=folder, mode="auto")


def test_a_value_that_was_stored_long_before_needs_no_chain_of_runs(
    programs: ForkServer, tmp_path: Path
) -> None:
    """A second run that begins too late does not start runs of its own."""
    result = run(programs, tmp_path, STORED)
    assert result.stderr.count("running the script again") == 1
    assert result.report is not None
    (found, *_) = result.report["anomalies"]
    assert (found["step"], found["location"]["line"]) == (15, 11)
    assert found["mechanism"] == "log_nonpositive"


def test_a_divisor_that_was_counted_up_since_is_known(programs: ForkServer, tmp_path: Path) -> None:
    report = run(programs, tmp_path, COUNTED).report
    assert report is not None
    (found,) = report["anomalies"]
    assert found["mechanism"] == "division_by_zero"
    assert found["operands"][-1]["max"] == 0.0


def test_a_divisor_that_is_too_large_to_keep_is_said_to_be_unknown(
    programs: ForkServer, tmp_path: Path
) -> None:
    program = COUNTED.replace("zeros(())", "zeros(500_000)").replace("ones(3)", "ones(500_000)")
    report = run(programs, tmp_path, program.replace("mean.tolist()", "mean.sum()")).report
    assert report is not None
    (found,) = report["anomalies"]
    assert found["mechanism"] == "opaque"
    assert "whose operand is lost" in found["headline"]


@pytest.mark.parametrize("update", ["a.copy_(a + (p - a) / n)", "a.add_((p - a) / n)"])
def test_an_average_of_the_weights_that_becomes_nan_is_harm(
    programs: ForkServer, tmp_path: Path, update: str
) -> None:
    report = run(programs, tmp_path, AVERAGED.replace("UPDATE", update)).report
    assert report is not None
    (found, *_) = report["anomalies"]
    assert (found["sink"], found["mechanism"]) == ("parameter", "division_by_zero")
    assert found["location"]["line"] == 15


def test_an_average_that_is_set_and_then_kept_finite_is_none(
    programs: ForkServer, tmp_path: Path
) -> None:
    report = run(programs, tmp_path, AVERAGED.replace("UPDATE", "a.lerp_(p, 0.1)")).report
    assert report is not None
    assert report["outcome"] == "clean"


def test_a_nan_that_marks_what_is_not_filled_in_yet_is_no_harm(
    programs: ForkServer, tmp_path: Path
) -> None:
    kept = "average = torch.nn.Parameter(torch.full((12,), float('nan')), requires_grad=False)"
    text = AVERAGED.replace("n = torch.zeros(())", kept).replace("n += 1", "average.mul_(1.0)")
    text = text.replace("for a, p in zip(average.parameters(), net.parameters()):", "if True:")
    result = run(programs, tmp_path, text.replace("UPDATE", "average[step] = loss"))
    assert result.report is not None
    assert (result.code, result.report["anomalies"]) == (0, []), result.stderr

"""A plain number that NumPy made bad: a weight of the loss, a learning rate."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.arrays.test_numpy_in_run import LOOP, line_of, run
from tests.harness import ForkServer, Result

HEAD = f"import numpy as np\nimport torch\n{LOOP}x = torch.ones(4, 3)\n"

NUMBERS = {
    "a weight of the loss": """
ages = np.array([3.0, 5.0, 0.0, 2.0])
for i in range(4):
    weight = 1.0 / ages[i]  # HERE
    loss = weight * net(x).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "in the same statement": """
ages = np.array([3.0, 5.0, 0.0, 2.0])
for i in range(4):
    loss = (1.0 / ages[i]) * net(x).pow(2).mean()  # HERE
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "a schedule": """
steps = np.arange(20.0)

def decay(step):
    return 1.0 if step < 5 else 1.0 / np.sqrt(steps[step - 5])  # HERE

schedule = torch.optim.lr_scheduler.LambdaLR(opt, decay)
for i in range(20):
    opt.zero_grad()
    net(x).pow(2).mean().backward()
    opt.step()
    schedule.step()
""",
    "a schedule within a function": """
steps = np.arange(20.0)

def decay(step):
    return 1.0 if step < 5 else 1.0 / np.sqrt(steps[step - 5])  # HERE

def train(opt):
    schedule = torch.optim.lr_scheduler.LambdaLR(opt, decay)
    for i in range(20):
        opt.zero_grad()
        net(x).pow(2).mean().backward()
        opt.step()
        schedule.step()

train(opt)
""",
}


def first(result: Result) -> dict[str, object]:
    assert result.report is not None
    found: dict[str, object] = result.report["anomalies"][0]
    return found


@pytest.mark.parametrize("mode", ["auto", "trace"])
@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_leads_back_to_the_line_of_numpy(
    programs: ForkServer, tmp_path: Path, name: str, mode: str
) -> None:
    result, script = run(programs, tmp_path, HEAD + NUMBERS[name], mode=mode)
    anomaly = first(result)
    assert anomaly["location"]["line"] == line_of(script)  # type: ignore[index]
    assert (anomaly["mechanism"], anomaly["phase"]) == ("division_by_zero", "data")


UNRELATED = {
    "a schedule that had nothing to do with it": """
def decay(step):
    np.float64(1.0) / np.float64(0.0)
    return 1.0

schedule = torch.optim.lr_scheduler.LambdaLR(other, decay)
for i in range(3):
    schedule.step()
    opt.param_groups[0]["lr"] = float(f"1e{400 + i}")
    opt.zero_grad()
    net(x).pow(2).mean().backward()
    opt.step()
""",
    "a quotient that was replaced": """
ratio = 1.0 / np.float64(0.0)
weight = np.nan_to_num(ratio, posinf=1.0)
gain = sum([1e308, 1e308])  # not a division
loss = weight * (gain * net(x).pow(2).mean())
loss.backward()
opt.step()
""",
}


@pytest.mark.parametrize("name", UNRELATED)
def test_a_number_from_elsewhere_is_not_blamed_on_numpy(
    programs: ForkServer, tmp_path: Path, name: str
) -> None:
    extra = "other = torch.optim.SGD(net.parameters(), lr=0.1)\n"
    result, _ = run(programs, tmp_path, HEAD + extra + UNRELATED[name])
    assert first(result)["mechanism"] in ("nonfinite_data", "overflow")


COMPUTED = """
import torch
w = torch.ones(3, requires_grad=True)
scale = {scale}
loss = (w * scale).sum()
loss.backward()
"""


def test_only_a_number_in_the_source_is_a_literal(programs: ForkServer, tmp_path: Path) -> None:
    result, _ = run(programs, tmp_path, COMPUTED.format(scale="float('nan')"))
    assert first(result)["mechanism"] == "nan_literal"
    result, _ = run(
        programs, tmp_path, "import json\n" + COMPUTED.format(scale="json.loads('1e999')")
    )
    anomaly = first(result)
    assert (anomaly["mechanism"], anomaly["causes"]) == ("nonfinite_data", [])
    assert "was given the number inf" in str(anomaly["headline"])
    assert "stands in the source" not in result.stderr

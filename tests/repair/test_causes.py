"""Causes: named where the evidence is, and not where a healthy value would look the same."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
import torch

from tests.harness import ForkServer

TRAINING = """
import torch
from torch import nn
torch.manual_seed(0)
x, y = torch.randn(32, 4), torch.randn(32, 1)
{change}
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
{init}
optimizer = torch.optim.SGD(net.parameters(), lr={lr})
for step in range(12):
    out = net(x)
    loss = {loss}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def causes(programs: ForkServer, folder: Path, text: str) -> dict[str, str]:
    script = folder / "program.py"
    script.write_text(textwrap.dedent(text))
    report = programs.run(script).report
    assert report is not None
    assert report["anomalies"]
    return {c["code"]: c["evidence"] for c in report["anomalies"][0]["causes"]}


def training(change: str = "", init: str = "", lr: str = "0.01", loss: str = "") -> str:
    plain = "((out - y) ** 2).mean()"
    return TRAINING.format(change=change, init=init, lr=lr, loss=loss or plain)


OVERFLOW = "((out - y) ** 2).mean() * (1e38 ** (step // 6)) * 10 ** (step // 6)"


@pytest.mark.parametrize(
    ("code", "program", "evidence"),
    [
        ("bad_init", training(init="nn.init.constant_(net[2].weight, 1e20)"), "2.weight was initialised at scale 1e+20"),
        ("bad_data", training(change="x[7, 2] = 1e20", loss="((out - y + x[:, 2:3]) ** 2).mean()"), "1e+20 in row 7 of column 2"),
        ("bad_data", training(change="x[:, 1] = 1e20 + torch.arange(32) * 1e18", loss="((out + x[:, 1:2]) ** 2).mean()"), "column 1 of the batch"),
        ("high_learning_rate", training(lr="20.0", init="net[1] = nn.Identity()"), "the loss rose from"),
        ("underflow", "import torch\nprint(torch.log(torch.exp(torch.tensor([-200.0]))))", "`exp` of -200 rounded to 0"),
        ("saturation", "import torch\nprint(torch.log(1 - torch.sigmoid(torch.tensor([60.0]))))", "rounded to exactly 1"),
        ("wrong_function", "import torch\nprint(torch.log(torch.sigmoid(torch.tensor([-200.0]))))", "logsigmoid"),
        ("constant_input", "import torch\nx = torch.full((4,), 2.0)\nprint(x / (x.max() - x.min()))", "largest and the smallest value are both 2"),
        ("cancellation", "import torch\nx = torch.tensor([1e4, 1e4 + 0.1], dtype=torch.float32)\nprint((x.square().mean() - x.mean().square() - 10).sqrt())", "which is rounding"),
        ("eps_too_small", "import torch\nx = torch.zeros(2, dtype=torch.float16)\nprint(1 / (x + 1e-8))", "in float16 gives 0"),
        ("missing_eps", "import torch\nx = torch.zeros(2, 3)\nprint(x / x.norm(dim=1, keepdim=True))", "nothing keeps the divisor away from 0"),
        ("empty_mask", "import torch\nx = torch.rand(4)\nprint((x * (x > 2)).sum() / (x > 2).sum())", "selects none of 4"),
        ("low_precision", "import torch\nx = torch.full((4,), 400.0, dtype=torch.float16)\nprint(x * x)", "float16 cannot hold it"),
    ],
)  # fmt: skip
def test_cause_is_named(
    code: str, program: str, evidence: str, programs: ForkServer, tmp_path: Path
) -> None:
    found = causes(programs, tmp_path, program)
    assert code in found
    assert evidence in found[code]


@pytest.mark.parametrize(
    ("code", "program"),
    [
        # ordinary weights, data and rate: the loss itself overflows
        ("bad_init", training(loss=OVERFLOW)),
        ("bad_data", training(loss=OVERFLOW)),
        ("high_learning_rate", training(loss=OVERFLOW)),
        ("exploding_gradients", training(loss=OVERFLOW)),
        # heavy tails are not an outlier
        ("bad_data", training(change="x = torch.exp(1.5 * torch.randn(32, 4))", loss=OVERFLOW)),
        # an exact zero that nothing rounded
        ("underflow", "import torch\nprint(torch.log(torch.tensor([2.0]) * 0))"),
        # an eps was there, but the operand was its opposite
        ("missing_eps", "import torch\nx = torch.tensor([-0.5])\nprint(1 / (x + 0.5))"),
        # the sum of values that happen to be 0 is no mask
        ("empty_mask", "import torch\nx = torch.zeros(4)\nprint(x.sum() / x.sum())"),
        ("constant_input", "import torch\nx = torch.tensor([2.0, 1.0])\nprint(x / (x - x))"),
    ],
)
def test_cause_stays_silent(code: str, program: str, programs: ForkServer, tmp_path: Path) -> None:
    assert code not in causes(programs, tmp_path, program)


LOADER = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
x = torch.randn(40, 3)
x[33] = {bad}
loader = DataLoader(TensorDataset(x, torch.zeros(40)), batch_size=8, shuffle=True, num_workers={workers})
net = nn.Linear(3, 1, bias=False)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for xb, yb in loader:
    out = net(xb).squeeze(1)
    loss = (out.pow(2).sqrt() - yb).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("bad", ["0.0", "float('nan')"])
def test_the_guilty_item_of_the_dataset_is_named(
    bad: str, workers: int, programs: ForkServer, tmp_path: Path
) -> None:
    script = tmp_path / "program.py"
    script.write_text(LOADER.format(bad=bad, workers=workers))
    report = programs.run(script).report
    assert report is not None
    first = report["anomalies"][0]
    assert first["dataset_index"] == 33
    assert first["samples"] == {"bad": 1, "of": 8}
    assert 0 <= first["sample"] < 8


def test_no_sample_is_blamed_when_all_fail(programs: ForkServer, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(LOADER.format(bad="0.0", workers=0).replace("net(xb)", "net(xb * 0)"))
    report = programs.run(script).report
    assert report is not None
    assert report["anomalies"][0]["sample"] is None


def test_the_failing_batch_can_be_kept(programs: ForkServer, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    prelude = f"import os\nos.environ['WHYNAN_SAVE_BATCH'] = {str(tmp_path / 'batch.pt')!r}\n"
    script.write_text(prelude + LOADER.format(bad="0.0", workers=0))
    programs.run(script)
    batch = torch.load(tmp_path / "batch.pt")
    (inputs,) = batch["inputs"]
    assert inputs.shape == (8, 3)
    assert not inputs[batch["sample"]].any()
    assert batch["dataset_indices"][batch["sample"]] == 33

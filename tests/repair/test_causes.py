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


POSITIVE = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(1.0))
    def forward(self):
        return self.scale + 1e-3 * torch.sqrt(self.scale)
net = Net()
optimizer = torch.optim.LBFGS(net.parameters(), lr={lr}, max_iter=40)
def closure():
    loss = net()
    optimizer.zero_grad()
    loss.backward()
    return loss
optimizer.step(closure)
"""
OVERFLOW = "((out - y) ** 2).mean() * (1e38 ** (step // 6)) * 10 ** (step // 6)"


@pytest.mark.parametrize(
    ("code", "program", "evidence"),
    [
        ("bad_init", training(init="nn.init.constant_(net[2].weight, 1e20)"), "2.weight was initialised at scale 1e+20"),
        ("bad_data", training(change="x[7, 2] = 1e20", loss="((out - y + x[:, 2:3]) ** 4).mean()"), "1e+20 in row 7 of column 2"),
        ("bad_data", training(change="x[:, 1] = 1e20 + torch.arange(32) * 1e18", loss="((out + x[:, 1:2]) ** 4).mean()"), "column 1 of the batch"),
        ("high_learning_rate", training(lr="20.0", init="net[1] = nn.Identity()"), "the loss rose from"),
        ("high_learning_rate", POSITIVE.format(lr=5.0), "one update took parameter scale from 1 to -4"),
        ("underflow", "import torch\nprint(torch.log(torch.exp(torch.tensor([-200.0]))))", "`exp` of -200 rounded to 0"),
        ("underflow", "import torch\na, b = torch.full((1, 2), 1e-3), torch.full((2, 2), 1e-4)\nfor _ in range(30):\n    a = a @ b\nprint(torch.log(a.sum()))", "rounded to 0"),
        ("saturation", "import torch\nprint(torch.log(1 - torch.sigmoid(torch.tensor([60.0]))))", "rounded to exactly 1"),
        ("wrong_function", "import torch\nprint(torch.log(torch.sigmoid(torch.tensor([-200.0]))))", "logsigmoid"),
        ("constant_input", "import torch\nx = torch.full((4,), 2.0)\nprint(x / (x.max() - x.min()))", "largest and the smallest value are both 2"),
        ("cancellation", "import torch\nx = torch.tensor([1e4, 1e4 + 0.1], dtype=torch.float32)\nprint((x.square().mean() - x.mean().square() - 10).sqrt())", "a rounding error"),
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
        # weights that a cast made infinite
        (
            "bad_init",
            "import torch\nfrom torch import nn\nnet = nn.Linear(4, 2)\nnn.init.constant_(net.weight, 7e4)\nprint(net.half()(torch.ones(3, 4).half()))",
        ),
        ("bad_data", training(loss=OVERFLOW)),
        ("high_learning_rate", training(loss=OVERFLOW)),
        ("exploding_gradients", training(loss=OVERFLOW)),
        # many small steps lead out of the domain: nothing keeps the parameter in it
        ("high_learning_rate", POSITIVE.format(lr=0.05)),
        # heavy tails are not an outlier
        ("bad_data", training(change="x = torch.exp(1.5 * torch.randn(32, 4))", loss=OVERFLOW)),
        # an exact zero that nothing rounded
        (
            "underflow",
            "import torch\nprint(torch.log(torch.tensor([[1.0, -1.0]]) @ torch.ones(2, 1)))",
        ),
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


GROWING = """
import torch
from torch import nn
torch.manual_seed(0)
x, y = torch.randn(32, 4), torch.randn(32, 1)
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.{optimizer}
scale = 1.0
for step in range(40):
    out = net(x)
    loss = ((out - y) ** 2).mean() * scale
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    {change}
"""


@pytest.mark.parametrize(
    ("optimizer", "change"),
    [
        # the loss is weighted more and more; the steps stay small
        ("Adam(net.parameters(), lr=1e-3)", "scale = scale * 1e4"),
        # not the optimizer, the program itself makes the weights large
        ("SGD(net.parameters(), lr=1e-9)", "net[2].weight.data.mul_(1e3)"),
        ("Adam(net.parameters(), lr=1e-3)", "net[2].weight.data.mul_(1e3)"),
    ],
)
def test_a_loss_that_rises_for_another_reason_is_not_the_learning_rates(
    optimizer: str, change: str, programs: ForkServer, tmp_path: Path
) -> None:
    found = causes(programs, tmp_path, GROWING.format(optimizer=optimizer, change=change))
    assert "high_learning_rate" not in found


@pytest.mark.parametrize(
    ("optimizer", "change"),
    [
        ("SGD(net.parameters(), lr=30.0)", ""),
        ("SGD(net.parameters(), lr=9.0, momentum=0.9)", ""),
        ("Adam(net.parameters(), lr=1e3)", "scale = 1e30 if step > 4 else 1.0"),
    ],
)
def test_weights_that_the_updates_made_large_are_the_learning_rates(
    optimizer: str, change: str, programs: ForkServer, tmp_path: Path
) -> None:
    program = GROWING.format(optimizer=optimizer, change=change)
    program = program.replace("nn.Tanh()", "nn.Identity()")
    assert "the loss rose from" in causes(programs, tmp_path, program)["high_learning_rate"]


RECURRENT = """
import torch
from torch import nn
torch.manual_seed(0)
rnn, head = nn.RNN(6, 48, nonlinearity="relu", batch_first=True), nn.Linear(48, 1)
nn.init.orthogonal_(rnn.weight_hh_l0, gain={gain})
parameters = [*rnn.parameters(), *head.parameters()]
optimizer = torch.optim.SGD(parameters, lr=1e-2, momentum=0.9)
for step in range(30):
    x = torch.randn(8, 40, 6)
    out = head(rnn(x)[0][:, -1])
    loss = ((out - x.sum((1, 2)).unsqueeze(1)) ** 2).mean(){overflow}
    optimizer.zero_grad()
    loss.backward()
    {clip}
    optimizer.step()
"""


@pytest.mark.parametrize("gain", [1.1, 1.2])
def test_a_gradient_may_explode_in_a_single_step(
    gain: float, programs: ForkServer, tmp_path: Path
) -> None:
    script = tmp_path / "program.py"
    script.write_text(RECURRENT.format(gain=gain, clip="", overflow=""))
    report = programs.run(script).report
    assert report is not None
    first = report["anomalies"][0]
    found = {c["code"]: c["evidence"] for c in first["causes"]}
    assert "the largest gradient norm was" in found["exploding_gradients"]
    assert "clip_grad_norm_" in first["fixes"][0]["title"]


def test_a_gradient_that_stayed_small_did_not_explode(programs: ForkServer, tmp_path: Path) -> None:
    clip = "nn.utils.clip_grad_norm_(parameters, 1.0)"
    program = RECURRENT.format(gain=1.05, clip=clip, overflow=" * 1e30 ** (step // 5)")
    assert "exploding_gradients" not in causes(programs, tmp_path, program)


HALVES = """
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)).half()
for micro in range(4):
    x, y = torch.randn(16, 8).half(), torch.full((16, 1), {target}).half()
    loss = (net(x) - y).float().pow(2).mean()
    {backward}
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
optimizer.step()
"""


def test_a_fixed_scale_of_the_loss_is_no_explosion(programs: ForkServer, tmp_path: Path) -> None:
    program = HALVES.format(target=20.0, backward="(loss * 512.0).backward()")
    found = causes(programs, tmp_path, program)
    assert "exploding_gradients" not in found
    assert found["loss_scale"].startswith("the loss was multiplied by 512 before the backward pass")


def test_a_gradient_that_does_not_fit_unscaled_either_is_not_the_scales(
    programs: ForkServer, tmp_path: Path
) -> None:
    program = HALVES.format(target=60000.0, backward="(loss * 2.0).backward()")
    assert "loss_scale" not in causes(programs, tmp_path, program)


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
    script.write_text(LOADER.format(bad="0.0", workers=0))
    programs.run(script, save_batch=str(tmp_path / "batch.pt"))
    batch = torch.load(tmp_path / "batch.pt")
    (inputs,) = batch["inputs"]
    assert inputs.shape == (8, 3)
    assert not inputs[batch["sample"]].any()
    assert batch["dataset_indices"][batch["sample"]] == 33


SCHEDULED = """
import torch
torch.manual_seed(0)
net = torch.nn.Linear(4, 2)
optimizer = torch.optim.{optimizer}
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: {rate})
for step in range(6):
    loss = net(torch.randn(8, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
"""


@pytest.mark.parametrize("optimizer", ["AdamW(net.parameters())", "SGD(net.parameters(), lr=0.1)"])
def test_an_infinite_learning_rate_leads_to_where_it_was_made(
    optimizer: str, programs: ForkServer, tmp_path: Path
) -> None:
    script = tmp_path / "program.py"
    rate = "1.0 if step < 3 else 10.0 ** 308 * 1e9"
    script.write_text(SCHEDULED.format(optimizer=optimizer, rate=rate))
    report = programs.run(script).report
    assert report is not None
    first = report["anomalies"][0]
    assert first["headline"].endswith("because `*` overflowed float64")
    assert "10.0 ** 308 * 1e9" in first["location"]["source"]


def test_a_learning_rate_that_numpy_made_infinite_is_named_as_that(
    programs: ForkServer, tmp_path: Path
) -> None:
    script = tmp_path / "program.py"
    rate = "1.0 / numpy.float64(3 - step)"
    text = SCHEDULED.format(optimizer="AdamW(net.parameters())", rate=rate)
    script.write_text("import numpy" + text)
    report = programs.run(script).report
    assert report is not None
    first = report["anomalies"][0]
    assert first["location"]["source"].startswith("schedule = ")
    assert "he optimizer had it as lr = inf" in first["explanation"]


CHECKPOINT = """
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
x = torch.randn(8, 3)

def step():
    loss = net(x).square().mean() + 0 * x.sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

step()
saved = torch.load("saved.pt")
{load}
for _ in range(3):
    step()
"""


def saved(folder: Path) -> None:
    """What an earlier run may have left: bad statistics, a bad moment, bad data."""
    optimizer = torch.optim.Adam([torch.zeros(4, 3, requires_grad=True)], lr=0.01)
    moment = {"step": torch.tensor(3.0), "exp_avg": torch.zeros(4, 3), "exp_avg_sq": torch.ones(4, 3)}  # fmt: skip
    moment["exp_avg"][1, 2] = float("nan")
    running = torch.ones(4)
    running[2] = float("nan")
    data = torch.ones(8, 3)
    data[5, 1] = float("nan")
    groups = optimizer.state_dict()["param_groups"]
    torch.save({"moment": moment, "groups": groups, "var": running, "x": data}, folder / "saved.pt")


MODEL = "net.eval(); net.load_state_dict({**net.state_dict(), '1.running_var': saved['var']})"
OPTIMIZER = """state = optimizer.state_dict()
state["state"][0] = saved["moment"]
optimizer.load_state_dict(state)"""


@pytest.mark.parametrize(
    ("load", "whose"),
    [(MODEL, "the state of the model"), (OPTIMIZER, "the state of the optimizer")],
    ids=["running statistics", "moments"],
)
def test_a_checkpoint_that_was_bad_already_is_poisoned_state(
    load: str, whose: str, programs: ForkServer, tmp_path: Path
) -> None:
    saved(tmp_path)
    script = tmp_path / "program.py"
    script.write_text(CHECKPOINT.format(load=load))
    report = programs.run(script).report
    assert report is not None
    first = report["anomalies"][0]
    assert {c["code"] for c in first["causes"]} == {"poisoned_state"}
    assert first["causes"][0]["evidence"] == f"it was saved like that: {whose} was loaded"
    assert first["location"]["source"] == 'saved = torch.load("saved.pt")'
    what = "buffer 1.running_var" if whose == "the state of the model" else whose
    held = "a non-finite value" if whose == "the state of the optimizer" else "NaN"
    assert f"{what} already held {held} when it was loaded" in first["headline"]
    assert first["fixes"][0]["kind"] == "earlier_checkpoint"


def test_loaded_data_is_data_and_no_state(programs: ForkServer, tmp_path: Path) -> None:
    saved(tmp_path)
    found = causes(programs, tmp_path, CHECKPOINT.format(load="x = saved['x']"))
    assert "bad_data" in found
    assert "poisoned_state" not in found


def test_a_healthy_checkpoint_is_not_blamed_for_a_later_failure(
    programs: ForkServer, tmp_path: Path
) -> None:
    saved(tmp_path)
    load = "net.load_state_dict(net.state_dict())\nx = x * 0 / 0"
    assert "poisoned_state" not in causes(programs, tmp_path, CHECKPOINT.format(load=load))


SCALED = """
import torch
w = torch.nn.Parameter(torch.ones(2))
optimizer = torch.optim.SGD([w], lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)
for _ in range({steps}):
    optimizer.zero_grad()
    loss = {loss}
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""


def test_a_collapsing_loss_scale_is_named(programs: ForkServer, tmp_path: Path) -> None:
    text = SCALED.format(steps=14, loss="(w.half() * 60000.0 * 30).float().sum()")
    found = causes(programs, tmp_path, text)
    assert "the loss scale fell to" in found["loss_scale"]


def test_a_failure_after_a_few_skips_is_not_the_loss_scales(
    programs: ForkServer, tmp_path: Path
) -> None:
    """Two skips are how a scale is found; the failure afterwards has another cause."""
    text = SCALED.format(steps=12, loss="(w.half() * 10.0).float().sum()")
    text += "print(torch.log(w * 0).sum().item())"
    assert "loss_scale" not in causes(programs, tmp_path, text)

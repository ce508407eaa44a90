"""What happens after harm: stop, skip or warn; and that nothing else changes."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from tests.harness import ForkServer

PROGRAMS = Path(__file__).parent.parent / "programs"
TRAIN = """
import hashlib, random, sys
import numpy as np, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __init__(self):
        self.x = torch.rand(96, 6) + 0.1
        for bad in (25, 26, 70):
            self.x[bad] = 0
    def __len__(self): return 96
    def __getitem__(self, i):
        return self.x[i] * (1 + 0.01 * random.random()), self.x[i].sum(), i

torch.manual_seed(5); np.random.seed(5); random.seed(5)
data = Rows()
model = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.4), nn.Linear(12, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.97)
average = torch.optim.swa_utils.AveragedModel(model)
for epoch in range(2):
    for x, y, rows in DataLoader(data, batch_size=8, shuffle=True, num_workers=WORKERS):
        if DROP and (x == 0).all(dim=1).any():
            continue
        unit = x / x.norm(dim=1, keepdim=True)
        loss = (model(unit).squeeze(-1) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        average.update_parameters(model)
digest = hashlib.sha256()
for t in (*model.state_dict().values(), *average.state_dict().values(), torch.get_rng_state()):
    digest.update(t.detach().numpy().tobytes())
print(digest.hexdigest(), random.random(), np.random.rand(), optimizer.param_groups[0]["lr"])
"""


def written(folder: Path, text: str, name: str = "script.py") -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(text))
    return path


@pytest.mark.parametrize("live_steps", [0, 5])
@pytest.mark.parametrize("workers", [0, 2])
def test_skipping_equals_leaving_the_batch_out_by_hand(
    workers: int, live_steps: int, programs: ForkServer, tmp_path: Path
) -> None:
    by_hand = TRAIN.replace("DROP", "True").replace("WORKERS", str(workers))
    failing = TRAIN.replace("DROP", "False").replace("WORKERS", str(workers))
    expected = programs.run(written(tmp_path, by_hand, "by_hand.py"), traced=False)
    script = written(tmp_path, failing)
    skipped = programs.run(script, mode="auto", on_anomaly="skip", live_steps=live_steps)
    assert expected.code == 0, expected.stderr
    assert skipped.stdout == expected.stdout, skipped.stderr
    assert skipped.code == 3
    assert skipped.report is not None
    assert skipped.report["anomalies"][0]["mechanism"] == "division_by_zero"
    said = re.search(r"skipped (\d+) update", skipped.stderr)
    assert said is not None
    assert int(said[1]) >= 4  # three bad rows, twice, perhaps two of them in one batch


@pytest.mark.parametrize("live_steps", [0, 5])
def test_skipping_works_when_the_loss_is_made_in_a_closure(
    live_steps: int, programs: ForkServer, tmp_path: Path
) -> None:
    text = TRAIN.replace("WORKERS", "0")
    body = text[text.index("        unit = ") : text.index("        schedule.step()")]
    lines = [f"    {line}\n" for line in body.splitlines() if "optimizer.step()" not in line]
    closure = ["        def closure():\n", *lines, "            return loss\n"]
    text = text.replace(body, "".join(closure) + "        optimizer.step(closure)\n")
    by_hand = written(tmp_path, text.replace("DROP", "True"), "by_hand.py")
    expected = programs.run(by_hand, traced=False)
    script = written(tmp_path, text.replace("DROP", "False"))
    skipped = programs.run(script, mode="auto", on_anomaly="skip", live_steps=live_steps)
    assert expected.code == 0, expected.stderr
    assert skipped.stdout == expected.stdout, skipped.stderr


def test_warning_changes_nothing_but_says_it_once(programs: ForkServer, tmp_path: Path) -> None:
    script = written(tmp_path, TRAIN.replace("DROP", "False").replace("WORKERS", "0"))
    warned = programs.run(script, mode="auto", on_anomaly="warn")
    assert warned.code == 3
    assert warned.stderr.count("error[N010]") == 1
    assert "more steps were harmful" in warned.stderr
    assert warned.stdout != ""


@pytest.mark.parametrize("live_steps", [0, 2])
def test_training_under_the_guard_is_bit_identical(live_steps: int, programs: ForkServer) -> None:
    plain = programs.run(PROGRAMS / "train_models.py", traced=False)
    watched = programs.run(PROGRAMS / "train_models.py", mode="auto", live_steps=live_steps)
    assert plain.code == 0, plain.stderr
    assert watched.stdout == plain.stdout
    assert watched.stderr == plain.stderr
    assert watched.code == 0


def test_guard_mode_stops_and_says_what_it_saw(programs: ForkServer, tmp_path: Path) -> None:
    script = written(tmp_path, TRAIN.replace("DROP", "False").replace("WORKERS", "0"))
    result = programs.run(script, mode="guard")
    assert result.code == 3
    assert result.report is not None
    anomaly = result.report["anomalies"][0]
    assert (anomaly["code"], anomaly["sink"], anomaly["location"]) == ("N091", "loss", None)
    assert result.report["reproduced"] == "no"
    assert result.stdout == ""
    assert "the operation that made it was not seen" in result.stderr


SCALED = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 16)
for step in range(STEPS):
    x = torch.rand(8, 4)
    with torch.autocast("cpu", dtype=torch.float16):
        out = model(x)
        loss = (out * FACTOR).square().mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print("scale", scaler.get_scale())
"""


def test_a_scale_that_finds_its_level_is_no_harm(programs: ForkServer, tmp_path: Path) -> None:
    text = SCALED.replace("STEPS", "30").replace("FACTOR", "3.0")
    result = programs.run(written(tmp_path, text), mode="auto", live_steps=0)
    assert result.code == 0, result.stderr
    assert result.report is not None
    assert result.report["anomalies"] == []


def test_a_scale_that_collapses_is_harm(programs: ForkServer, tmp_path: Path) -> None:
    text = SCALED.replace("STEPS", "40").replace("FACTOR", "(x.sum() * 1e5)")
    script = written(tmp_path, text)
    result = programs.run(script, mode="auto", live_steps=0)
    traced = programs.run(script, mode="trace")
    assert result.report is not None
    assert traced.report is not None
    seen, expected = result.report["anomalies"][0], traced.report["anomalies"][0]
    assert result.code == 3
    for key in ("location", "mechanism", "phase"):
        assert seen[key] == expected[key]


READ_AFTERWARDS = """
import torch
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
x = torch.randn(160, 4)
x[50] = 0
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), 0.01)
total = 0.0
for (rows,) in DataLoader(TensorDataset(x), batch_size=4):
    loss = net(rows / rows.norm(dim=-1, keepdim=True)).square().mean()  # HERE
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total += loss.item()
"""


@pytest.mark.parametrize("policy", ["skip", "warn"])
def test_a_loss_that_is_read_after_its_step_is_no_news(
    policy: str, programs: ForkServer, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(READ_AFTERWARDS)
    result = programs.run(script, mode="auto", on_anomaly=policy)
    assert result.report is not None
    (only,) = result.report["anomalies"]
    assert only["location"]["source"].endswith("# HERE")
    assert only["sample"] == 2

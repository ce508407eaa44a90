"""Which item of the dataset was bad, also where workers fetch ahead of the loop."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys, torch
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
x, w = torch.randn(80, 4), torch.ones(80)
w[BAD] = 0
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
loader = DataLoader(TensorDataset(x, w), 4, num_workers=2, persistent_workers=True)
next(iter(loader))  # an epoch that was left early
for rows, weight in loader:
    loss = ((net(rows).squeeze(1) * weight).square() / weight).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


AHEAD = """
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
x = torch.randn(80, 4)
x[BAD] = 0
accelerator = Accelerator(cpu=True)
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
net, optimizer, loader = accelerator.prepare(net, optimizer, DataLoader(TensorDataset(x), 4))
for (rows,) in loader:
    loss = (net(GIVEN) / rows.norm(dim=-1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()
"""


@pytest.mark.parametrize("given", ["rows", "rows * 2"])
def test_a_loader_that_is_ahead_names_no_later_item(tmp_path: Path, given: str) -> None:
    (tmp_path / "train.py").write_text(AHEAD.replace("BAD", "13").replace("GIVEN", given))
    done = subprocess.run(
        [sys.executable, "-m", "whynan", "run", "train.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 3, done.stderr
    assert "only sample 1 of the 4 in the batch" in done.stderr
    assert "item 13 of the dataset" in done.stderr


@pytest.mark.parametrize("bad", [13, 42, 57])  # recorded live at steps 3 and 10; step 14 repeated
def test_the_item_is_the_one_that_was_bad(tmp_path: Path, bad: int) -> None:
    (tmp_path / "train.py").write_text(SCRIPT.replace("BAD", str(bad)))
    done = subprocess.run(
        [sys.executable, "-m", "whynan", "run", "train.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 3
    assert f"item {bad} of the dataset" in done.stderr

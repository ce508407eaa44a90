"""A figure that is shown after training holds what was read in an earlier step."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.watching.test_faults import run
from tests.watching.test_policies import written

# All targets of step 22 are left out: its loss is NaN, its gradients are 0.
TRAINS = """
import math
import torch
import torch.nn.functional as F
torch.manual_seed(0)
net = torch.nn.Linear(4, 3)
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
class Meter:
    def __init__(self): self.sum, self.n = 0.0, 0
    def update(self, v):
        self.sum += v
        self.n += 1
def step(i):
    x, y = torch.randn(6, 4), torch.randint(0, 3, (6,))
    if i == 22: y[:] = -100
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad(); loss.backward(); opt.step()
    return loss.item()
meter, losses = Meter(), []
for i in range(30):
    loss = step(i)
    meter.update(loss)
    losses.append(loss)
"""


@pytest.mark.parametrize(
    "shown",
    ["print('mean', sum(losses) / 30)", "print(f'{meter.sum / meter.n:.3f}')"],
    ids=["a list", "an object"],
)
def test_a_mean_of_losses_leads_back_to_the_step(tmp_path: Path, shown: str) -> None:
    result = run(written(tmp_path, TRAINS + shown), "--json", "report.json")
    assert result.returncode == 3, result.stderr
    assert "all 6\n  targets are -100" in result.stderr
    assert "step 22" in result.stderr
    assert '"reproduced": "rerun"' in (tmp_path / "report.json").read_text()


@pytest.mark.parametrize(
    "shown",
    [
        "print('mean', sum(x for x in losses if not math.isnan(x)) / 29, 'without nan')",
        "losses = []; print('nan', losses)",
        "other = float('nan'); print(other)",
        "print(len(losses), float('nan'))",
    ],
)
def test_what_shows_none_of_it_is_silent(tmp_path: Path, shown: str) -> None:
    result = run(written(tmp_path, TRAINS + shown))
    assert (result.returncode, result.stderr) == (0, "")

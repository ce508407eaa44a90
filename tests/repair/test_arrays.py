"""`whynan fix` where NumPy made the value: a guard around its operation, run and seen to hold."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.repair.bundles import unpacked
from tests.repair.forked import RepairServer

PROGRAMS = {
    "a log before torch": ("np_maximum", "np.log(np.maximum(raw, 1e-12))", """
        import numpy as np
        import torch
        torch.manual_seed(0)
        net = torch.nn.Linear(3, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        raw = np.arange(12.0).reshape(4, 3)
        x = torch.tensor(np.log(raw), dtype=torch.float32)
        for step in range(5):
            loss = net(x / 100).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
    """),
    "a divisor of either sign": ("np_divisor", "1 / n.where(slope == 0, 1e-8, slope)", """
        import numpy as n
        slope = n.array([-2.0, 0.0, 4.0])
        print(1 / slope)
    """),
    "a root": ("np_maximum", "numpy.sqrt(numpy.maximum(var, 0))", """
        import numpy
        var = numpy.array([4.0, -1e-9])
        print(numpy.sqrt(var))
    """),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_guard_for_numpy_is_verified(repairs: RepairServer, tmp_path: Path, name: str) -> None:
    kind, text, program = PROGRAMS[name]
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(program).lstrip())
    found = repairs.fix(script)
    first = found["fixes"][0]
    assert (first["kind"], first["verdict"]) == (kind, "verified")
    [changed] = found["texts"].values()
    assert text in changed
    assert "clamp" not in changed


def test_no_change_is_offered_for_what_has_none(repairs: RepairServer, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import numpy as np\nx = np.array([3e38], np.float32)\nprint(np.multiply(x, x))\n"
    )
    found = repairs.fix(script)
    assert found["anomaly"] == "overflow"
    assert found["texts"] == {}


def test_a_change_of_what_is_shown_last_is_run_to_the_end(
    repairs: RepairServer, tmp_path: Path
) -> None:
    text = """
import numpy as np
import torch
from torch import nn

def log_loss(y, p, eps=1e-15):
    p = np.clip(p, eps, 1 - eps)
    return -np.mean(y * np.log(p) + (1 - y) * np.log(1 - p))

torch.manual_seed(0)
x = torch.randn(64, 3)
y = (x[:, 0] > 0).float()
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(60):
    loss = nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(1), y)
    LOOP
with torch.no_grad():
    p = torch.sigmoid(90 * model(x).squeeze(1)).numpy()
print("log loss", log_loss(y.numpy(), p))
"""
    found = repairs.fix(unpacked(tmp_path, text))
    first = next(fix for fix in found["fixes"] if fix["verdict"] == "verified")
    assert (first["kind"], first["evidence"].split(",")[0]) == ("raise_eps", "60 steps run")

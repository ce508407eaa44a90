"""Ways around a wrong kernel are changes like any other: made in the source, and run."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.repair.forked import RepairServer

CASES = Path(__file__).parents[1] / "cases"
HEAD = """
import math
import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F


def install(name, kernel):
    vendor = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        vendor.impl(name, kernel, "CPU")
    return vendor


def spoilt(out):
    out = out.clone()
    out.view(-1)[0] = float("nan")
    return out

"""
LOOP = """

def main(model, optimizer, x):
    for step in range(4):
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


torch.manual_seed(0)
"""
ATTENTION = """
class Attend(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(8, 8)

    def forward(self, x):
        q = self.q(x)
        out = F.scaled_dot_product_attention(q, x, x)
        return out.mean(-1)
"""
ATTENDS = "model = Attend()\nmain(model, torch.optim.SGD(model.parameters(), lr=0.1), torch.randn(1, 2, 6, 8))\n"
FORWARD = """
def flash(q, k, v, *rest, **named):
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    return spoilt(scores.softmax(-1) @ v), scores.logsumexp(-1)
"""
BACKWARD = """
def flash_backward(g, q, k, v, *rest, **named):
    return spoilt(torch.zeros_like(q)), torch.zeros_like(k), torch.zeros_like(v)
"""
CONVOLUTION = """
def onednn(x, weight, bias, padding, stride, dilation, groups):
    return torch.full((x.shape[0], weight.shape[0], x.shape[2] - 2, x.shape[3] - 2), float("nan"))
"""
CONVOLVES = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(16, 16, 3)

    def forward(self, x):
        # the first layer
        y = self.conv(x)
        return y.mean((2, 3))


model = Net()
main(model, torch.optim.SGD(model.parameters(), lr=0.1), torch.randn(8, 16, 24, 24))
"""
FUSED = """
def adam(params, *rest, **named):
    for p in params:
        p.copy_(spoilt(p))
"""
UPDATES = """
model = nn.Linear(4, 1)
with torch.no_grad():
    model.weight.fill_(1e3)
main(model, torch.optim.Adam(model.parameters(), lr=1e-3, fused=True), torch.full((8, 4), 1e5))
"""
FLASH = "_scaled_dot_product_flash_attention_for_cpu"
PROGRAMS = {
    "attention": (
        HEAD + FORWARD + f'vendor = install("{FLASH}", flash)\n' + ATTENTION + LOOP + ATTENDS,
        "sdpa_math",
        "with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):",
    ),
    "attention backward": (
        HEAD + BACKWARD + f'vendor = install("{FLASH}_backward", flash_backward)\n' + ATTENTION + LOOP + ATTENDS,
        "sdpa_math",
        "with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):",
    ),
    "oneDNN": (
        HEAD + CONVOLUTION + 'vendor = install("mkldnn_convolution", onednn)\n' + LOOP + CONVOLVES,
        "without_onednn",
        "with torch.backends.mkldnn.flags(enabled=False):",
    ),
    "fused": (
        HEAD + FUSED + 'vendor = install("_fused_adam_", adam)\n' + LOOP + UPDATES,
        "plain_optimizer",
        "fused=False",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_way_around_is_run(name: str, repairs: RepairServer, tmp_path: Path) -> None:
    text, kind, written = PROGRAMS[name]
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(text))
    found = repairs.fix(script)
    first = found["fixes"][0]
    assert (first["kind"], first["verdict"]) == (kind, "verified"), found
    added = [line for line in first["patch"].splitlines() if line.startswith("+")]
    assert any(written in line for line in added)
    assert len(added) <= 3  # the header and one statement


WRITTEN = {
    "torch.expm1(x)": "+        occupancy = torch.log(torch.tanh(x / 2) * (torch.exp(x) + 1))",
    "torch.expm1(x + 0.0)": "+        operand = x + 0.0\n+        occupancy = torch.log(torch.tanh(operand / 2) * (torch.exp(operand) + 1))",
}  # fmt: skip


@pytest.mark.parametrize("call", WRITTEN)
def test_a_compiled_function_is_written_otherwise(
    call: str, repairs: RepairServer, tmp_path: Path
) -> None:
    found = repairs.fix(_compiled(call, tmp_path))
    first = found["fixes"][0]
    assert (first["kind"], first["verdict"]) == ("written_otherwise", "verified")
    assert WRITTEN[call] in first["patch"]


def test_a_function_that_cannot_be_written_otherwise_is_not_compiled(
    repairs: RepairServer, tmp_path: Path
) -> None:
    found = repairs.fix(_compiled("torch.expm1(x, out=None)", tmp_path))
    first = found["fixes"][0]
    assert (first["kind"], first["verdict"]) == ("uncompiled", "verified")
    assert "+    @torch.compiler.disable\n     def forward" in first["patch"]


def _compiled(call: str, folder: Path) -> Path:
    text = (CASES / "compiled_backend_pass" / "script.py").read_text()
    script = folder / "program.py"
    script.write_text(text.replace("occupancy = torch.log(torch.expm1(x))", f"occupancy = torch.log({call})"))  # fmt: skip
    return script

"""Gumbel noise: drawn from an exponential, with the same distribution and always finite."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.repair.forked import RepairServer

PROGRAM = """import torch


def noise(x):
    {body}


torch.manual_seed(0)
w = torch.zeros(20000, dtype=torch.{dtype}, requires_grad=True)
optimizer = torch.optim.SGD([w], lr=0.1)
for step in range(3):
    loss = (w + noise(w)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("dtype", "body", "becomes"),
    [
        (
            "bfloat16",
            "u = 1 - torch.rand(x.shape, dtype=x.dtype)  # no log(0)\n    return -torch.log(-torch.log(u))",
            "return -torch.empty(x.shape, dtype=x.dtype).exponential_().log()",
        ),
        (
            "float16",
            "g = -torch.log(torch.rand_like(x) + 1e-20)\n    return -torch.log(g + 1e-20)",
            "return -torch.empty_like(x).exponential_().log()",
        ),
        (
            "bfloat16",
            "return -(-torch.empty_like(x).uniform_().log()).log()",
            "return -torch.empty_like(x).exponential_().log()",
        ),
        (
            "bfloat16",
            "n = 20000\n    u = torch.rand(n, dtype=x.dtype)\n    n = 3\n    return -torch.log(-torch.log(u)) + 0 * n",
            None,  # the number of draws is another one by then
        ),
        (
            "bfloat16",
            "made = torch.Generator().manual_seed(1)\n    return -torch.log(-torch.log(torch.rand(20000, generator=made).to(x.dtype)))",
            None,  # the numbers are made wide and rounded later
        ),
    ],
)
def test_gumbel_noise(
    repairs: RepairServer, tmp_path: Path, dtype: str, body: str, becomes: str | None
) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM.format(body=body, dtype=dtype))
    found = repairs.fix(script)
    if becomes is None:
        assert "exponential_noise" not in [f["kind"] for f in found["fixes"]]
        return
    first = found["fixes"][0]
    assert (first["kind"], first["verdict"]) == ("exponential_noise", "verified")
    text = next(iter(found["texts"].values()))
    assert text.split("def noise(x):\n")[1].splitlines()[0].strip() == becomes
    scope: dict[str, Tensor] = {}
    exec(text.split("\n\n\ntorch.manual_seed")[0], scope)
    drawn = scope["noise"](torch.zeros(200_000, dtype=getattr(torch, dtype))).double()  # type: ignore[operator]
    assert drawn.isfinite().all()
    assert abs(drawn.mean() - 0.5772) < 0.02  # Euler's constant
    assert abs(drawn.var() - 1.6449) < 0.05

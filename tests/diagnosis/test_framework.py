"""What the framework changed is named as the cause where switching it off makes the value finite."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tests.record.test_tracer import anomalies_of

LARGE = 6e4


def causes_of(function: object, dtype: torch.dtype = torch.float16, *, cast: bool = True) -> dict[str, str]:  # fmt: skip
    def program() -> None:
        w = nn.Parameter(torch.full((4, 4), 1.0))
        with torch.autocast("cpu", dtype=dtype, enabled=cast):
            loss = function(w).float().pow(2).mean()  # type: ignore[operator]
        loss.backward()
        torch.optim.SGD([w], lr=0.1).step()

    found = anomalies_of(program)
    assert found
    assert found[0].finding.mechanism == "overflow"
    return {cause.code: cause.evidence for cause in found[0].finding.causes}


def test_an_autocast_that_made_a_product_overflow_is_the_cause() -> None:
    said = causes_of(lambda w: w @ torch.full((4, 4), LARGE))["autocast"]
    assert (
        said == "autocast put `@` into float16, whose operands were float32; float32 holds 2.4e+05"
    )


def test_an_autocast_further_up_is_the_cause_too() -> None:
    def function(w: Tensor) -> Tensor:
        h = w @ torch.full((4, 4), 300.0)
        return h * h

    assert "autocast put `@` into float16" in causes_of(function)["autocast"]


@pytest.mark.parametrize(
    "function",
    [
        lambda w: w.half() * LARGE * 4,
        lambda w: w.half() @ torch.full((4, 4), LARGE).half(),
        lambda w: w.to(torch.float16) * 300 * 300,
    ],
    ids=["half", "product", "to"],
)
def test_a_cast_that_the_program_wrote_is_its_own(function: object) -> None:
    assert "autocast" not in causes_of(function)
    assert "autocast" not in causes_of(function, cast=False)


def test_what_float32_cannot_hold_either_is_not_the_autocasts() -> None:
    def function(w: Tensor) -> Tensor:
        return (w @ torch.full((4, 4), 3e38)) * 1e30

    assert "autocast" not in causes_of(function, torch.bfloat16)

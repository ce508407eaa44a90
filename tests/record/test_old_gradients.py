"""A gradient that went bad before a block began: only what the block does with it is its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import whynan


def spoilt() -> torch.nn.Parameter:
    weight = torch.nn.Parameter(torch.zeros(2))
    weight.sqrt().sum().backward()  # as the cell did that has been repaired since
    assert weight.grad is not None
    assert weight.grad.isinf().all()
    return weight


def test_a_repaired_block_that_drops_it_is_silent() -> None:
    weight = spoilt()
    optimizer = torch.optim.SGD([weight], lr=0.1)
    with whynan.trace() as block:
        optimizer.zero_grad()
        (weight + 1).sqrt().sum().backward()
        optimizer.step()
    assert not whynan.diagnose(block).anomalies


def test_a_block_that_leaves_it_alone_is_silent() -> None:
    weight = spoilt()
    with whynan.trace() as block:
        total = (weight + 1).sum()
    assert total.item() == 2
    assert not whynan.diagnose(block).anomalies


def test_a_step_with_it_is_harm_and_the_repaired_line_is_not_blamed() -> None:
    weight = spoilt()
    optimizer = torch.optim.SGD([weight], lr=0.1)
    with whynan.trace() as block:
        (weight + 1).sqrt().sum().backward()
        optimizer.step()
    (anomaly,) = whynan.diagnose(block).anomalies
    assert anomaly.finding.mechanism == "nonfinite_data"
    assert "before anything was recorded" in str(whynan.diagnose(block))


def differentiates(weight: torch.Tensor) -> None:
    torch.autograd.grad((weight + 1).sum(), weight)


def trains_another(weight: torch.Tensor) -> None:
    (weight + 1).sum()
    torch.ones(2, requires_grad=True).sum().backward()


def reads_it_later(weight: torch.Tensor) -> None:
    torch.ones(2, requires_grad=True).sum().backward()
    (weight + 1).sum()


def asks_for_another(weight: torch.Tensor) -> None:
    x = torch.ones(2, requires_grad=True)
    (weight + x).sum().backward(inputs=[x])


@pytest.mark.parametrize("work", [differentiates, trains_another, reads_it_later, asks_for_another])
def test_a_block_with_a_backward_pass_that_leaves_it_alone_is_silent(
    work: Callable[[torch.Tensor], None],
) -> None:
    weight = spoilt()
    with whynan.trace() as block:
        work(weight)
    assert not whynan.diagnose(block).anomalies


def test_a_block_that_adds_to_it_leaves_it_behind() -> None:
    weight = spoilt()
    with whynan.trace() as block:
        (weight + 1).sum().backward()
    (anomaly,) = whynan.diagnose(block).anomalies
    assert anomaly.evidence.sink == "gradient"


def test_a_gradient_whose_leaf_is_met_in_the_backward_pass_is_the_blocks() -> None:
    weight, x = torch.nn.Parameter(torch.zeros(2)), torch.ones(2, requires_grad=True)
    with whynan.trace() as block:
        checkpoint(lambda x: (x * weight.sqrt()).sum(), x, use_reentrant=True).backward()
    (anomaly,) = whynan.diagnose(block).anomalies
    assert anomaly.evidence.sink == "gradient"

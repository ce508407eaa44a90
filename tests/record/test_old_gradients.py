"""A gradient that went bad before a block began: only what the block does with it is its own."""

from __future__ import annotations

import torch

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

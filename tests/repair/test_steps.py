"""Steps that are too long for what they follow are made shorter, and what comes out has to settle."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.repair.bundles import unpacked, verified
from tests.repair.forked import RepairServer

SPRING = """
    import torch
    from torch import nn

    STEP = 0.5


    class Spring(nn.Module):
        def __init__(self):
            super().__init__()
            self.stiff = nn.Parameter(torch.tensor(30.0))

        def forward(self, x):
            return -self.stiff * x * x.abs()


    def swing(spring, x, end):
        for _ in range(ROUNDS):
            x = x + STEP * spring(x)
        return x


    spring = Spring()
    optimizer = torch.optim.SGD(spring.parameters(), lr=1e-3)
    for step in range(3):
        loss = (swing(spring, torch.tensor(2.0), 10.0) - 0.1).square()
        LOOP
    """


def test_a_stable_step_is_written_where_the_step_is_set(
    repairs: RepairServer, tmp_path: Path
) -> None:
    text = SPRING.replace("ROUNDS", "round(end / STEP)")
    assert verified(repairs.fix(unpacked(tmp_path, text))) == ("shorter_steps", ["STEP = 0.025"])


def test_shorter_steps_are_not_proposed_where_their_number_is_fixed(
    repairs: RepairServer, tmp_path: Path
) -> None:
    found = repairs.fix(unpacked(tmp_path, SPRING.replace("ROUNDS", "20")))
    assert "shorter_steps" not in {f["kind"] for f in found["fixes"]}


@pytest.mark.parametrize("given", ["lr=1, max_iter=20", "lr=1, max_iter=20, history_size=5"])
def test_lbfgs_searches_along_its_direction(
    repairs: RepairServer, tmp_path: Path, given: str
) -> None:
    text = f"""
    import torch

    torch.manual_seed(1)
    t = torch.linspace(0, 10, 200)
    signal = 5.0 * torch.exp(-t / 0.4) + 2.0 * torch.exp(-t / 3.0) + 0.02 * torch.randn(200)
    size = torch.tensor([1.0, 1.0], requires_grad=True)
    rate = torch.tensor([1.0, 0.1], requires_grad=True)
    optimizer = torch.optim.LBFGS([size, rate], {given})


    def closure():
        optimizer.zero_grad()
        decay = torch.exp(-rate[:, None] * t)
        loss = (((size[:, None] * decay).sum(0) - signal) ** 2).sum()
        loss.backward()
        return loss


    for _ in range(5):
        optimizer.step(closure)
    """
    kind, lines = verified(repairs.fix(unpacked(tmp_path, text)))
    line = f'optimizer = torch.optim.LBFGS([size, rate], {given}, line_search_fn="strong_wolfe")'
    assert (kind, lines) == ("line_search", [line])

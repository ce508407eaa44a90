"""Zeros and marks in the data mean something: no floor turns them into numbers to be learnt."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.repair.bundles import unpacked, verified
from tests.repair.forked import RepairServer

PROGRAMS = {
    "a mark of a missing value under a logarithm": (
        """
        import numpy as np
        import torch
        from torch import nn

        rng = np.random.default_rng(0)
        rain, wind = rng.gamma(2.0, 2.0, 40), rng.normal(size=(40, 2))
        rain[[4, 19]] = -999
        table = np.column_stack([wind, rain]).astype(np.float32)
        x = torch.from_numpy(table[:, :2])
        y = torch.log1p(torch.from_numpy(table[:, 2]))
        torch.manual_seed(0)
        model = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(3):
            loss = (model(x).squeeze(1) - y).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
        ["table = table[(table != -999).all(axis=1)]"],
    ),
    "steps of a running average are counted from 1": (
        """
        import torch

        torch.manual_seed(0)
        w = torch.randn(4, requires_grad=True)
        mean, t, beta = torch.zeros(4), 0, torch.tensor(0.9)
        for step in range(4):
            loss = (w - torch.randn(4)).square().sum()
            loss.backward()
            with torch.no_grad():
                mean.mul_(beta).add_(w.grad, alpha=0.1)
                w -= 0.1 * (mean / (1 - beta**t))
                w.grad = None
            t += 1
        """,
        ["        w -= 0.1 * (mean / (1 - beta**(t + 1)))"],
    ),
    "a table of what is allowed": (
        """
        import torch

        torch.manual_seed(0)
        allowed = torch.log(torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]]))
        scores = torch.zeros(2, 3, requires_grad=True)
        optimizer = torch.optim.SGD([scores], lr=0.1)
        for step in range(3):
            loss = -torch.logsumexp(scores.log_softmax(1) + allowed, dim=0)[1]
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
        [],
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_number_is_made_up(repairs: RepairServer, tmp_path: Path, name: str) -> None:
    text, lines = PROGRAMS[name]
    assert verified(repairs.fix(unpacked(tmp_path, text)))[1] == lines

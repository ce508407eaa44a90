"""Logarithms of quotients, products and sums that are computed without leaving log space."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.repair.bundles import unpacked, verified
from tests.repair.forked import RepairServer

PROGRAM = """
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Linear(6, 5)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(6):
    x = torch.randn(8, 6) * ({scale} if step == 3 else 1)
    y = torch.randint(0, 5, (8,))
    scores = model(x)
{body}
    LOOP
"""
FORMS = {
    "a quotient of chosen elements": (
        """
    e = torch.exp(scores)
    own = e.gather(1, y[:, None]).squeeze(1)
    loss = -torch.log(own / e.sum(dim=1)).mean()
""",
        ["    loss = -(scores.gather(1, y[:, None]).squeeze(1) - torch.logsumexp(scores, dim=1)).mean()"],
    ),
    "two sums at once": (
        """
    some = torch.exp(scores[:, :2]).sum(dim=1)
    every = torch.exp(scores).sum(dim=1)
    loss = -(torch.log(some) - torch.log(every)).mean()
""",
        ["    loss = -(torch.logsumexp(scores[:, :2], dim=1) - torch.logsumexp(scores, dim=1)).mean()"],
    ),
    "a variable that held the exponentials": (
        """
    e = torch.exp(scores / 0.5)
    loss = -torch.log(e[:, 0] / e.sum(dim=1)).mean()
""",
        ["    e = scores / 0.5", "    loss = -(e[:, 0] - torch.logsumexp(e, dim=1)).mean()"],
    ),
    "a sigmoid by hand": (
        """
    loss = -torch.log(1 / (1 + torch.exp(-scores))).mean()
""",
        ["    loss = -F.logsigmoid(scores).mean()"],
    ),
    "the model runs once": (
        """
    p = model(x).softmax(-1)
    loss = (p * torch.log(p)).sum(-1).mean()
""",
        ["    logits = model(x)", "    p = logits.softmax(-1)", "    loss = (p * logits.log_softmax(-1)).sum(-1).mean()"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_the_logarithm_stays_in_log_space(repairs: RepairServer, tmp_path: Path, name: str) -> None:
    body, lines = FORMS[name]
    text = PROGRAM.format(body=body.strip("\n"), scale=300)
    kind, added = verified(repairs.fix(unpacked(tmp_path, text)))
    assert added == lines
    assert kind in ("log_space", "log_ratio", "log_softmax")


def test_the_determinant_of_either_sign(repairs: RepairServer, tmp_path: Path) -> None:
    text = """
    import torch

    torch.manual_seed(2)
    w = (torch.eye(60) * 0.1).requires_grad_()
    optimizer = torch.optim.SGD([w], lr=1e-4)
    for step in range(3):
        loss = w.square().sum() - torch.log(torch.det(w).abs())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    """
    kind, added = verified(repairs.fix(unpacked(tmp_path, text)))
    assert added == ["    loss = w.square().sum() - torch.linalg.slogdet(w).logabsdet"]
    assert kind == "log_space"


def test_a_floor_far_from_the_truth_is_refused(repairs: RepairServer, tmp_path: Path) -> None:
    """float64 computes the likelihood; a floor under it would be finite, and something else."""
    text = """
    import torch

    torch.manual_seed(0)
    w = torch.randn(60, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.01)
    for step in range(6):
        factors = [torch.sigmoid(v) for v in w * (1 if step < 3 else 1e-3)]
        likelihood = torch.ones(())
        for factor in factors:
            likelihood = likelihood * factor * (1 if step < 3 else 0.1)
        loss = -torch.log(likelihood)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    """
    found = repairs.fix(unpacked(tmp_path, text))
    assert found["anomaly"] == "log_nonpositive"
    assert verified(found)[0] is None
    assert "Carry its logarithm" in " ".join(f["title"] for f in found["fixes"])

"""Targets with NaN marks: set aside before the arithmetic, so that no gradient is 0 times NaN."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.repair.bundles import unpacked, verified
from tests.repair.forked import RepairServer

PROGRAM = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(5, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(3):
    x, y = torch.randn(16, 5), torch.randn(16, 3)
    y[torch.rand(16, 3) < 0.2] = float("nan")
{body}
    LOOP
"""
FORMS = {
    "masked by a product afterwards": (
        """
    pred = model(x)
    mask = ~torch.isnan(y)
    loss = ((pred - y) ** 2 * mask).sum() / mask.sum()
""",
        ["    y = torch.where(mask, y, 0.0)"],
    ),
    "chosen without a variable": (
        """
    loss = torch.where(torch.isnan(y), 0.0, (model(x) - y) ** 2).sum()
""",
        [
            "    missing = torch.isnan(y)",
            "    y = torch.where(missing, 0.0, y)",
            "    loss = torch.where(missing, 0.0, (model(x) - y) ** 2).sum()",
        ],
    ),
    "a mean that forgets them": (
        """
    loss = torch.nanmean((model(x) - y) ** 2)
""",
        [
            "    known = ~torch.isnan(y)",
            "    loss = torch.mean((model(x)[known] - y[known]) ** 2)",
        ],
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_the_marks_are_set_aside_first(repairs: RepairServer, tmp_path: Path, name: str) -> None:
    body, lines = FORMS[name]
    found = repairs.fix(unpacked(tmp_path, PROGRAM.format(body=body.strip("\n"))))
    assert verified(found)[1] == lines


def test_a_mask_that_is_only_counted_leaves_nothing_out(
    repairs: RepairServer, tmp_path: Path
) -> None:
    """With zeros for the missing targets, `nansum` would add their predictions to the loss."""
    body = """
    mask = ~torch.isnan(y)
    loss = torch.nansum((model(x) - y) ** 2) / mask.sum()
"""
    found = repairs.fix(unpacked(tmp_path, PROGRAM.format(body=body.strip("\n"))))
    assert not [line for line in verified(found)[1] if "0.0" in line]

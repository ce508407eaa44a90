"""The guilty sample where a statistic over the batch has spread its fault."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.repair.forked import RepairServer
from whynan.explain.story import told_sample
from whynan.model import Sample
from whynan.trying.leaving_out import part_of

TRAINING = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
x = torch.randn(48, 3)
{bad}
loader = DataLoader(TensorDataset(x, torch.zeros(48)), batch_size=16, shuffle=True, num_workers={workers})
net = nn.Sequential(nn.Linear(3, 4), {norm}, nn.Tanh(), nn.Linear(4, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for epoch in range(2):
    for xb, yb in loader:
        out = net(xb).squeeze(1)
        loss = {loss}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
MEAN = "((out - yb) ** 2).mean()"
PRODUCT = f"{MEAN} * (1 + 1e-9 / (xb[:, 0] - 2).prod())"
SPREAD = f"{MEAN} * (1 + 1e-3 * xb.norm())"


def write(
    folder: Path, bad: str, loss: str = MEAN, norm: str = "nn.Identity()", workers: int = 0
) -> Path:
    script = folder / "program.py"
    script.write_text(TRAINING.format(bad=bad, loss=loss, norm=norm, workers=workers))
    return script


@pytest.mark.parametrize(
    ("bad", "loss", "norm", "workers", "tries"),
    [
        # an ordinary value, which only this formula cannot stand: the batch is bisected
        ("x[33, 0] = 2.0", PRODUCT, "nn.BatchNorm1d(4)", 0, 6),
        ("x[33, 0] = 2.0", PRODUCT, "nn.Identity()", 1, 6),
        # an outlier is the first suspect; another sample is left out to compare
        ("x[33] = 1e25", MEAN, "nn.BatchNorm1d(4)", 0, 2),
        ("x[33] = 1e25", SPREAD, "nn.Identity()", 0, 2),
    ],
    ids=["product", "product, with a worker", "batch norm", "norm of the batch"],
)
def test_the_sample_without_which_the_step_is_healthy_is_named(
    bad: str, loss: str, norm: str, workers: int, tries: int, repairs: RepairServer, tmp_path: Path
) -> None:
    """A batch norm refuses a batch of one: halves are left out, never kept alone."""
    found = repairs.guilty(write(tmp_path, bad, loss, norm, workers))
    sample = found["sample"]
    assert sample is not None
    assert (sample["dataset_index"], sample["size"], sample["inferred"]) == (33, 16, True)
    assert found["tries"] <= tries


@pytest.mark.parametrize(
    ("bad", "loss"),
    [
        pytest.param("x[:, 1] = 1e25", SPREAD, id="every sample"),
        pytest.param("x[3::4] = 1e25", SPREAD, id="several in each half"),
        pytest.param("", f"{MEAN} * torch.log(torch.zeros(()))", id="the formula"),
    ],
)
def test_no_sample_is_blamed(bad: str, loss: str, repairs: RepairServer, tmp_path: Path) -> None:
    found = repairs.guilty(write(tmp_path, bad, loss))
    assert found["sample"] is None
    assert found["tries"] <= 4  # a suspect and one beside it; both halves; no more


def test_what_the_rows_show_needs_no_search(repairs: RepairServer, tmp_path: Path) -> None:
    found = repairs.guilty(write(tmp_path, "x[33] = float('nan')"))
    assert found == {"sample": None, "tries": 0}


def test_a_sample_that_was_not_seen_is_told_as_an_inference() -> None:
    sample = Sample(index=10, size=32, dataset_index=217, inferred=True)
    assert told_sample(sample) == (
        "it is sample 10 of the 32 in the batch, item 217 of the dataset: "
        "without it the step stays healthy"
    )


def test_only_what_has_an_entry_for_each_sample_is_cut() -> None:
    batch = {
        "x": torch.arange(8.0).reshape(4, 2),
        "names": ["a", "b", "c", "d"],
        "scale": torch.tensor(3.0),
        "table": torch.zeros(7, 4),
    }
    part = part_of([batch, 5], 4, [0, 3])
    assert part[1] == 5
    assert part[0]["x"].tolist() == [[0.0, 1.0], [6.0, 7.0]]
    assert part[0]["names"] == ["a", "d"]
    assert part[0]["scale"] == 3
    assert part[0]["table"].shape == (7, 4)
    columns = [torch.zeros(4) for _ in range(4)]  # four columns, not four samples
    assert [len(c) for c in part_of(columns, 4, [0, 3])] == [2, 2, 2, 2]

"""An item is called by its file or its text where the dataset has them, a row by its table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, Subset

from tests.harness import ForkServer
from whynan.record.item_names import name_of

PROGRAM = """
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset
torch.manual_seed(0)
rows = torch.rand(40, 3) + 0.1
rows[17] = 0.0
class Clips(Dataset):
    def __init__(self):
        self.files = [f"clips/{i:02d}.wav" for i in range(40)]
    def __len__(self):
        return 40
    def __getitem__(self, i):
        return rows[i]
net = nn.Linear(3, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for epoch in range(2):
    for x in BATCHES:
        x = x / x.sum(1, keepdim=True)
        loss = net(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
BY_LOADER = "DataLoader(Clips(), batch_size=8, shuffle=True)"
OF_A_PART = "DataLoader(Subset(Clips(), [*range(4, 36)]), batch_size=8, shuffle=True)"
BY_INDEX = "(rows[order] for order in torch.randperm(40).split(8))"


def told(programs: ForkServer, folder: Path, batches: str) -> tuple[dict[str, Any], str]:
    script = folder / "train.py"
    script.write_text(PROGRAM.replace("BATCHES", batches))
    result = programs.run(script, cwd=folder, mode="auto")
    assert result.report is not None
    return result.report["anomalies"][0], " ".join(result.stderr.split())


@pytest.mark.parametrize(("batches", "item"), [(BY_LOADER, 17), (OF_A_PART, 13)])
def test_an_item_is_called_by_its_file(
    batches: str, item: int, programs: ForkServer, tmp_path: Path
) -> None:
    found, said = told(programs, tmp_path, batches)
    assert (found["dataset_index"], found["item"]) == (item, "clips/17.wav")
    assert f"item {item} of the dataset (clips/17.wav)" in said


def test_a_row_is_named_by_its_place_in_the_table(programs: ForkServer, tmp_path: Path) -> None:
    found, said = told(programs, tmp_path, BY_INDEX)
    assert found["dataset_index"] == 17
    assert "row 17 of a table of 40" in said


GRAPHS = """
import torch
from torch import nn
from torch.utils.data import DataLoader

class Joined:
    def __init__(self, graphs):
        self.x = torch.cat(graphs)
        sizes = torch.tensor([len(g) for g in graphs])
        self.batch = torch.arange(len(graphs)).repeat_interleave(sizes)

torch.manual_seed(0)
graphs = [torch.rand(2 + i % 3, 3) + 0.1 for i in range(60)]
graphs[47][1] = 0.0
net = nn.Linear(3, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for batch in DataLoader(graphs, batch_size=4, shuffle=True, collate_fn=Joined):
    x = batch.x / batch.x.sum(1, keepdim=True)
    out = torch.zeros(4, 1).index_add(0, batch.batch, net(x))
    optimizer.zero_grad()
    out.square().mean().backward()
    optimizer.step()
"""


def test_a_graph_is_named_in_a_batch_of_graphs(programs: ForkServer, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(GRAPHS)
    report = programs.run(script, cwd=tmp_path, mode="auto").report
    assert report is not None
    assert report["anomalies"][0]["dataset_index"] == 47


class Items(Dataset[Any]):
    def __init__(self, **held: Any) -> None:
        self.__dict__.update(held)

    def __len__(self) -> int:
        return 3


@pytest.mark.parametrize(
    ("dataset", "name"),
    [
        (Items(texts=["a", "two  words", "c"]), "'two words'"),
        (Items(labels=["x", "y", "z"], samples=[(f"{n}.png", 0) for n in "abc"]), "b.png"),
        (Items(texts=["a" * 99] * 3), repr("a" * 57 + "...")),
        (Items(texts=["a", "b"]), None),  # of something else
        (Items(rows=torch.zeros(3)), None),
        (Subset(Items(texts=["a", "b", "c"]), [2, 1]), "'b'"),
        ([{"text": "a", "n": 1}, {"n": 2, "text": "b"}], "'b'"),
    ],
)
def test_what_a_dataset_has_for_each_item(dataset: Any, name: str | None) -> None:
    assert name_of(dataset, 1) == name

"""A sample is named where the recorded operations lead to it, and nowhere else."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.harness import ForkServer


def first(programs: ForkServer, folder: Path, program: str) -> dict[str, Any]:
    script = folder / "program.py"
    script.write_text(textwrap.dedent(program))
    report = programs.run(script, cwd=folder).report
    assert report is not None
    assert report["anomalies"]
    found: dict[str, Any] = report["anomalies"][0]
    return found


TARGETS = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
y = torch.rand(12) + 0.1
y[{bad}] = 0
net = nn.Linear(3, 1)
for x, y in DataLoader(TensorDataset(torch.randn(12, 3), y), batch_size=4):
    loss = {loss}
    loss.backward()
"""


def test_the_sample_of_a_bad_target_is_named(programs: ForkServer, tmp_path: Path) -> None:
    program = TARGETS.format(bad=6, loss="(net(x).squeeze(1) - y.log()).square().mean()")
    found = first(programs, tmp_path, program)
    assert (found["sample"], found["dataset_index"]) == (2, 6)


def test_a_loss_that_averages_nothing_is_no_samples(programs: ForkServer, tmp_path: Path) -> None:
    """The first target is the first sample's, and a constant stands at the end."""
    loss = """nn.functional.cross_entropy(
        net(x).expand(4, 2), torch.cat([(y[:1] * 0).long() - 100, torch.full((3,), -100)]))"""
    found = first(programs, tmp_path, TARGETS.format(bad=6, loss=loss) + "print(loss)")
    assert found["mechanism"] == "empty_reduction"
    assert found["sample"] is None


CHANNELS = """
import torch
from torch import nn
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 8, 3)
        with torch.no_grad():
            self.conv.weight[[2, 5]] = 0
    def forward(self, x):
        h = self.conv(x)
        return {scaled}
x = torch.randn(8, 1, 9)
x[3] = 0
net = Net()
loss = net(x).square().mean()
loss.backward()
"""


def test_a_channel_of_a_weight_is_no_sample(programs: ForkServer, tmp_path: Path) -> None:
    """Eight channels beside eight samples."""
    norm = "self.conv.weight / self.conv.weight.abs().amax((1, 2), keepdim=True)"
    program = CHANNELS.format(scaled=f"nn.functional.conv1d(x, {norm})")
    assert first(programs, tmp_path, program)["sample"] is None


def test_a_row_of_the_input_is_one(programs: ForkServer, tmp_path: Path) -> None:
    scaled = "h + (x / x.abs().amax((1, 2), keepdim=True)).mean()"
    found = first(programs, tmp_path, CHANNELS.format(scaled=scaled))
    assert (found["sample"], found["samples"]) == (3, {"bad": 1, "of": 8})


ROWS = """
import torch
from torch import nn
torch.manual_seed(0)
x = torch.rand(6, {shape}) + 0.1
x[{zero}] = 0
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(6))
        self.norm = nn.BatchNorm1d(3)
        self.head = nn.Linear(3, 3)
    def forward(self, x):
        return {result}
loss = Net()(x).square().mean()
loss.backward()
"""


@pytest.mark.parametrize(
    ("shape", "zero", "result", "sample"),
    [
        ("3", "4", "(self.w.exp() - 1).log()", None),  # a weight with as many rows
        ("3", "4", "torch.zeros(6).log() + self.w", None),  # a constant
        ("3", "4", "x.sum(1).log() + self.w", 4),
        ("3", "4", "x.sum(1)[[5, 4, 3, 2, 1, 0]].log() + self.w", 4),  # turned round
        ("3", "4", "x.sum(1)[x[:, 0] < 9].log().sum() + self.w", 4),
        ("3", "4", "(x @ x.t()).log() + self.w", None),  # of two samples each
        ("3", "4", "(x.t() @ x - x.t() @ x).log().sum() + self.w", None),  # of all of them
        ("2, 3", "4, 1", "x.reshape(12, 3).sum(1).log().sum() + self.w", 4),  # merged with another
        ("2, 3", "4, 1", "x.transpose(0, 1).sum(2).log().sum() + self.w", 4),  # not the first one
        ("3", "4", "(self.norm(x).mean(1) * 0 + x.sum(1)).log() + self.w", 4),
        ("3", "4", "(x.sum(1) - x.sum() * 0).log() + self.w", 4),
    ],
)
def test_the_sample_is_followed_through_operations(
    shape: str, zero: str, result: str, sample: int | None, programs: ForkServer, tmp_path: Path
) -> None:
    program = ROWS.format(shape=shape, zero=zero, result=result)
    assert first(programs, tmp_path, program)["sample"] == sample


ATTENTION = """
import torch
from torch import nn
torch.manual_seed(0)
x = torch.randn(6, 5, 8)
hidden = torch.zeros(6, 5, dtype=torch.bool)
hidden[4] = True
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 4, batch_first={first})
    def forward(self, x):
        return self.attention(x, x, x, key_padding_mask={mask})[0]
Net()(x).sum().backward()
"""


def test_heads_beside_samples_are_told_apart(programs: ForkServer, tmp_path: Path) -> None:
    found = first(programs, tmp_path, ATTENTION.format(first=True, mask="hidden"))
    assert found["first_index"][0] == 16
    assert (found["sample"], found["samples"]) == (4, {"bad": 1, "of": 6})


def test_the_times_of_a_sequence_are_no_samples(programs: ForkServer, tmp_path: Path) -> None:
    mask = "hidden.t()[:, :1].expand(5, 6)"
    program = ATTENTION.format(first=False, mask=mask).replace("hidden[4]", "hidden[:, 0]")
    assert first(programs, tmp_path, program)["sample"] is None


RECURRENT = """
import torch
from torch import nn
torch.manual_seed(0)
x = torch.rand({shape}, 3) + 0.1
x[4] = 0
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 8, batch_first={first})
    def forward(self, x):
        return self.lstm(x)[0].{mean} + x.sum(-1).log().{mean}
loss = Net()(x).sum()
loss.backward()
print(loss.item())
"""


def test_an_lstm_with_its_times_first_has_no_samples_there(
    programs: ForkServer, tmp_path: Path
) -> None:
    program = RECURRENT.format(shape="6, 5", first=False, mean="mean()")
    assert first(programs, tmp_path, program)["sample"] is None
    program = RECURRENT.format(shape="6, 5", first=True, mean="mean()")
    assert first(programs, tmp_path, program)["sample"] == 4


def test_a_sample_is_followed_through_an_lstm(programs: ForkServer, tmp_path: Path) -> None:
    program = RECURRENT.format(shape="6, 5", first=True, mean="mean()").replace(
        "return ", "h = self.lstm(x)[0].mean((1, 2)) * 0 + x.sum((1, 2))\n        return h.log() #"
    )
    assert first(programs, tmp_path, program)["sample"] == 4


def test_the_rows_of_packed_sequences_are_no_samples(programs: ForkServer, tmp_path: Path) -> None:
    program = """
    import torch
    from torch import nn
    from torch.nn.utils.rnn import pack_sequence
    packed = pack_sequence([torch.ones(3, 2), torch.zeros(2, 2)])
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(2))
        def forward(self, packed):
            return (packed.data * self.w).log().sum()
    Net()(packed).backward()
    """
    assert first(programs, tmp_path, program)["sample"] is None


def test_the_tokens_of_one_sentence_are_no_samples(programs: ForkServer, tmp_path: Path) -> None:
    """Two lists of numbers may be users and items, or the words and labels of one sentence."""
    program = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.lstm = nn.Embedding(9, 4), nn.LSTM(4, 4, batch_first=True)
        def forward(self, tokens, labels):
            states = self.lstm(self.table(tokens)[None])[0][0]
            first = states[0] * torch.tensor([1.0, 0.0, 1.0, 1.0])
            return first.abs().log().sum() + states.sum() + labels.sum()
    Tagger()(torch.tensor([3, 1, 4, 1, 5]), torch.tensor([0, 1, 0, 1, 0])).backward()
    """
    assert first(programs, tmp_path, program)["sample"] is None


ONE_AT_A_TIME = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
x = torch.rand(12, 3) + 0.1
x[7] = 0
net = nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for (row,) in DataLoader(TensorDataset(x), batch_size=1, shuffle=True):
    loss = net(row / row.sum(1, keepdim=True)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


def test_of_batches_of_one_the_item_is_named(programs: ForkServer, tmp_path: Path) -> None:
    found = first(programs, tmp_path, ONE_AT_A_TIME)
    assert (found["sample"], found["dataset_index"]) == (0, 7)


def test_a_diverging_run_blames_no_item(programs: ForkServer, tmp_path: Path) -> None:
    program = ONE_AT_A_TIME.replace("x[7] = 0", "").replace("lr=0.01", "lr=1e20")
    assert first(programs, tmp_path, program)["sample"] is None


STREAM = """
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset
torch.manual_seed(0)

class Lines(IterableDataset):
    def __iter__(self):
        for i in range(96):
            yield {"text": torch.randn(3), "price": torch.tensor(float("nan" if i == 57 else i))}

net = nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for batch in DataLoader(Lines(), batch_size=8):
    loss = (net(batch["text"]).squeeze(1) - batch["price"]).tanh().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


@pytest.mark.parametrize("mode", ["trace", "auto"])
def test_an_item_of_a_stream_is_counted(programs: ForkServer, tmp_path: Path, mode: str) -> None:
    script = tmp_path / "program.py"
    script.write_text(STREAM)
    result = programs.run(script, mode=mode)
    assert result.report is not None
    found = result.report["anomalies"][0]
    assert (found["sample"], found["dataset_index"]) == (1, 57)
    assert "item 57 of the dataset, in `price`" in " ".join(result.stderr.split())


TABLE = """
import torch
from torch import nn
from torch.utils.data import DataLoader
torch.manual_seed(0)

class Table:
    \"\"\"Gives a whole batch at once, as tables of Hugging Face do.\"\"\"
    def __len__(self):
        return 40

    def __getitems__(self, rows):
        price = torch.tensor([float("nan") if i == 29 else i / 40 for i in rows])
        return [{"x": torch.randn(3), "price": p} for p in price.unbind()]

net = nn.Linear(3, 1)
for batch in DataLoader(Table(), batch_size=8, shuffle=True):
    loss = (net(batch["x"]).squeeze(1) - batch["price"]).square().mean()
    loss.backward()
"""


def test_a_row_of_a_table_is_named_with_its_column(programs: ForkServer, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(TABLE)
    result = programs.run(script)
    assert result.report is not None
    assert result.report["anomalies"][0]["dataset_index"] == 29
    assert "item 29 of the dataset, in `price`" in " ".join(result.stderr.split())


TEXTS = """
import random
import torch
from torch import nn
random.seed(3)
torch.manual_seed(0)
docs = [{{"id": f"doc-{{i:02d}}", "words": [2 + i % 5] * (1 + i % 4)}} for i in range(20)]
docs[9]["words"] = []
emb = nn.Embedding(30, 8)
opt = torch.optim.SGD(emb.parameters(), lr=0.01)
order = list(range(20))
random.shuffle(order)
for k in range(0, 20, 5):
    batch = {batch}
    width = max(len(d["words"]) for d in batch)
    ids = torch.tensor([d["words"] + [0] * (width - len(d["words"])) for d in batch])
    mask = (ids != 0).float()
    pooled = (emb(ids) * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    pooled.square().mean().backward()
    opt.step()
"""
GROUPS = """
import torch
from torch import nn
torch.manual_seed(0)
scenes = [{"name": f"scene-{i}", "points": torch.randn(5, 3)} for i in range(12)]
scenes[7]["points"][2] = scenes[7]["points"][4]
net = nn.Linear(1, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
def energy(points):
    i, j = torch.triu_indices(5, 5, 1)
    return net(1 / (points[i] - points[j]).norm(dim=1, keepdim=True)).mean()
for k in range(0, 12, 3):
    loss = sum(energy(s["points"]) for s in scenes[k : k + 3])
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


@pytest.mark.parametrize(
    ("program", "item"),
    [
        (TEXTS.format(batch="docs[k : k + 5]"), 9),
        (TEXTS.format(batch="[docs[i] for i in order[k : k + 5]]"), 9),
        (GROUPS, 7),
    ],
)
def test_the_item_of_a_list_is_named(
    programs: ForkServer, tmp_path: Path, program: str, item: int
) -> None:
    assert first(programs, tmp_path, program)["dataset_index"] == item


WORKERS = """
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

class Rows(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        x = torch.ones(32, 5)
        x[21, 2] = float("nan")
        yield from x[info.id :: info.num_workers]

net = torch.nn.Linear(5, 1)
for x in DataLoader(Rows(), batch_size=4, num_workers=2):
    net(x).sum().backward()
    torch.optim.SGD(net.parameters(), lr=0.1).step()
"""


def test_an_item_of_a_stream_is_counted_by_worker(programs: ForkServer, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(WORKERS)
    words = " ".join(programs.run(script, cwd=tmp_path).stderr.split())
    assert "item 10 of those from worker 1 of 2" in words


SUBCLASS = """
import torch
from torch import nn
from torch.utils.data import DataLoader

import images

torch.manual_seed(0)
data = [images.Image(torch.rand(2, 3) + (0.5 if i != 5 else -1)) for i in range(12)]
net = nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for x in DataLoader(data, batch_size=4):
    loss = net(torch.log(x)).mean()  # HERE
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
IMAGES = """
import torch

class Image(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs)

    def __new__(cls, values):
        return values.as_subclass(cls)
"""


def test_a_library_s_own_tensors_are_a_batch(programs: ForkServer, tmp_path: Path) -> None:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "images.py").write_text(IMAGES)
    head = 'import sys\nsys.path.insert(0, sys.path[0] + "/site-packages")'
    found = first(programs, tmp_path, head + SUBCLASS)
    assert "# HERE" in found["location"]["source"]
    assert (found["sample"], found["dataset_index"]) == (1, 5)

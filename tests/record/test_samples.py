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

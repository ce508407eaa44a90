"""Rows for which pandas or NumPy has no number are left out before, of inputs and targets together."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.repair.bundles import unpacked, verified
from tests.repair.forked import RepairServer

TRAINED = """
torch.manual_seed(0)
model = nn.Linear(x.shape[1], 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(3):
    loss = ((model(x.float()).squeeze(1) - y.float()) ** 2).mean()
    LOOP
"""
HEAD = """
import numpy as np
import pandas as pd
import torch
from torch import nn

rng = np.random.default_rng(0)
"""
PROGRAMS = {
    "logarithm of a price of 0": (
        HEAD
        + """
prices = pd.DataFrame({"close": rng.uniform(20, 30, 80), "open": rng.uniform(20, 30, 80)})
prices.loc[41, "close"] = 0.0
prices["move"] = np.log(prices["close"]).diff()
prices["up"] = (prices["close"] > prices["open"]).astype(float)
prices = prices.dropna()
x = torch.tensor(prices[["move", "open"]].to_numpy())
y = torch.tensor(prices["up"].to_numpy())
x = (x - x.mean(0)) / x.std(0)
"""
        + TRAINED,
        "drop_rows",
        ['prices = prices[prices["close"] > 0]'],
    ),
    "logarithm in a function that is given the table": (
        HEAD
        + """
policies = pd.DataFrame({"age": rng.uniform(20, 70, 80), "exposure": rng.uniform(0.1, 1, 80)})
policies.loc[33, "exposure"] = 0.0

def design(frame):
    \'\'\'Offsets and ages.\'\'\'
    offset = np.log(frame["exposure"].to_numpy())
    return np.stack([offset, frame["age"].to_numpy() / 70], 1), frame["age"].to_numpy() / 70

x, y = map(torch.tensor, design(policies))
"""
        + TRAINED,
        "drop_rows",
        ['    frame = frame[frame["exposure"] > 0]'],
    ),
    "change relative to a column that is made above": (
        HEAD
        + """
sales = pd.DataFrame({"sold": rng.integers(1, 90, 80), "back": rng.integers(0, 1, 80)})
sales.loc[17, "sold"] = 0
sales["net"] = sales["sold"] - sales["back"]
sales["grows"] = sales["net"] / sales["net"].shift(1) - 1.0
sales["up"] = (sales["grows"] > 0).astype(float)
sales = sales.iloc[1:]
x = torch.tensor(sales[["grows", "sold"]].to_numpy()) / 90
y = torch.tensor(sales["up"].to_numpy())
"""
        + TRAINED,
        "drop_rows",
        ['sales = sales[sales["net"] != 0]'],
    ),
    "windows that never change": (
        HEAD
        + """
raw = rng.normal(20.0, 1.0, 300)
raw[120:140] = 21.5
windows = np.lib.stride_tricks.sliding_window_view(raw, 6)
spread = windows.std(axis=1)
score = (windows[:, -1] - windows.mean(axis=1)) / spread
x = torch.tensor(np.stack([score, windows[:, 0] - 20.0], 1))
y = torch.from_numpy(raw[5:].copy()) - 20.0
"""
        + TRAINED,
        "drop_rows",
        ["varied = spread > 1e-6", "x, y = x[varied], y[varied]"],
    ),
    "a mark that half precision cannot hold": (
        HEAD
        + """
counts = rng.integers(100, 900, (60, 4)).astype(np.uint16)
counts[7, 2] = 65535
label = rng.normal(size=60)
x = torch.tensor(counts.astype(np.int32)).half() / 1000
y = torch.tensor(label)
"""
        + TRAINED,
        "drop_fill_values",
        [
            "measured = (counts != 65535).all(axis=1)",
            "counts, label = counts[measured], label[measured]",
        ],
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_rows_without_a_number_are_left_out_before(
    repairs: RepairServer, tmp_path: Path, name: str
) -> None:
    text, kind, lines = PROGRAMS[name]
    assert verified(repairs.fix(unpacked(tmp_path, text))) == (kind, lines)


def test_a_column_that_never_changes_is_no_row(repairs: RepairServer, tmp_path: Path) -> None:
    text = (
        HEAD
        + """
table = rng.normal(size=(40, 3))
table[:, 1] = 4.0
scaled = (table - table.mean(0)) / table.std(0)
x = torch.tensor(scaled)
y = torch.tensor(table[:, 0])
"""
        + TRAINED
    )
    assert verified(repairs.fix(unpacked(tmp_path, text)))[0] == "unit_spread"


@pytest.mark.parametrize(
    ("above", "loss", "lines"),
    [
        (
            "",
            "nn.functional.cross_entropy(model(x), y)",
            ['    loss = nn.functional.cross_entropy(model(x), y, reduction="sum") / (y != -100).sum().clamp(min=1)'],
        ),
        (
            "criterion = nn.CrossEntropyLoss(ignore_index=0)",
            "criterion(model(x), y)",
            [
                'criterion = nn.CrossEntropyLoss(ignore_index=0, reduction="sum")',
                "    loss = criterion(model(x), y) / (y != 0).sum().clamp(min=1)",
            ],
        ),
    ],
)  # fmt: skip
def test_a_batch_without_a_target_that_counts_teaches_nothing(
    repairs: RepairServer, tmp_path: Path, above: str, loss: str, lines: list[str]
) -> None:
    text = f"""
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Linear(3, 4)
    {above or "ignored = -100"}
    seen = []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(5):
        x, y = torch.randn(6, 3), torch.randint(1, 4, (6,))
        if step == 2:
            y[:] = {0 if above else -100}
        loss = {loss}
        LOOP
        seen.append(loss.item())
    print(sum(seen) / len(seen))
    """
    assert verified(repairs.fix(unpacked(tmp_path, text))) == ("sum_over_count", lines)

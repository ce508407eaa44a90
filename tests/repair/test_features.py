"""Finite data that no model can take: scaled, or left out, where it comes in."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.repair.forked import RepairServer

TABLE = """import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(3)
features = torch.rand(96, 4)
{bad}
target = torch.rand(96)
net = nn.Sequential(nn.Linear(4, 8), {norm}, nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
{loop}
"""
LOADER = """# in a fixed order
loader = DataLoader(TensorDataset(features, target), batch_size=16)
for epoch in range(3):
    for {batch} in {loader}:
        # one step
        loss = nn.functional.mse_loss(net(xb).squeeze(1), yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
WHOLE = """for epoch in range(6):
    loss = nn.functional.mse_loss(net(features).squeeze(1), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
TIMES = "features[:, 2] = 1.7e9 + 1e6 * torch.rand(96)  # unix time"
SENSOR = "features[77, 3] = 4e22  # a sensor that failed"


def write(folder: Path, bad: str, loop: str, norm: str = "nn.Identity()") -> Path:
    script = folder / "program.py"
    script.write_text(TABLE.format(bad=bad, loop=loop, norm=norm))
    return script


@pytest.mark.parametrize(
    "loop", [LOADER.format(batch="xb, yb", loader="loader"), WHOLE], ids=["loader", "whole table"]
)
def test_an_unscaled_column_is_standardised_where_it_comes_in(
    loop: str, repairs: RepairServer, tmp_path: Path
) -> None:
    found = repairs.fix(write(tmp_path, TIMES, loop))
    assert (found["fixes"][0]["kind"], found["fixes"][0]["verdict"]) == ("standardise", "verified")
    text = next(iter(found["texts"].values()))
    made = "features = ((features - mean) / std.clamp(min=1e-6)).to(features.dtype)"
    assert made in text.splitlines()
    assert text.index("target =") < text.index(made) < text.index("for epoch")
    assert "# in a fixed order" in text or loop is WHOLE
    scope: dict[str, object] = {}
    exec(text.partition("loader =" if "loader" in loop else "for epoch")[0], scope)
    scaled = scope["features"]
    assert scaled.mean(dim=0).abs().max() < 0.01  # type: ignore[attr-defined]  # a tensor
    assert (scaled.std(dim=0) - 1).abs().max() < 0.05  # type: ignore[attr-defined]  # a tensor


@pytest.mark.parametrize(
    ("batch", "loader"),
    [("xb, yb", "loader"), ("i, (xb, yb)", "enumerate(loader)")],
    ids=["plain", "enumerated"],
)
def test_the_sample_of_a_broken_sensor_is_left_out(
    batch: str, loader: str, repairs: RepairServer, tmp_path: Path
) -> None:
    loop = LOADER.format(batch=batch, loader=loader).replace(
        "(features, target)", "(*[features, target])"
    )
    found = repairs.fix(write(tmp_path, SENSOR, loop, norm="nn.BatchNorm1d(8)"))
    assert (found["fixes"][0]["kind"], found["fixes"][0]["verdict"]) == (
        "drop_outliers",
        "verified",
    ), found["fixes"]
    lines = next(iter(found["texts"].values())).splitlines()
    at = lines.index("        usual = (xb.abs() < 1e11).flatten(1).all(dim=1)")
    assert lines[at - 1] == "        # one step"
    assert lines[at + 1] == "        xb, yb = xb[usual], yb[usual]"


def test_it_is_left_out_of_tables_that_the_source_shows(
    repairs: RepairServer, tmp_path: Path
) -> None:
    loop = LOADER.format(batch="xb, yb", loader="loader")
    found = repairs.fix(write(tmp_path, SENSOR, loop, norm="nn.BatchNorm1d(8)"))
    assert found["fixes"][0]["verdict"] == "verified"
    lines = next(iter(found["texts"].values())).splitlines()
    at = lines.index("measured = (features.abs() < 1e11).all(dim=1)")
    assert lines[at + 1] == "features, target = features[measured], target[measured]"
    assert lines[at + 2].startswith("loader =")


def test_ordinary_data_is_not_touched_for_a_high_rate(
    repairs: RepairServer, tmp_path: Path
) -> None:
    script = write(tmp_path, "", LOADER.format(batch="xb, yb", loader="loader"))
    script.write_text(script.read_text().replace("lr=1e-3", "lr=1e9").replace("nn.ReLU()", "nn.Identity()"))  # fmt: skip
    found = repairs.fix(script)
    assert found["anomaly"] == "overflow"
    kinds = {fix["kind"] for fix in found["fixes"]}
    assert kinds
    assert not kinds & {"standardise", "drop_outliers"}


PRICES = """import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(3)
table = torch.stack([30 + 220 * torch.rand(96), 1 + 6 * torch.rand(96)], dim=1)
price = 3.1 * table[:, 0] + 12 * table[:, 1]
net = nn.Linear(2, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)


def step(x, y):
    loss = nn.functional.mse_loss(net(x).squeeze(1), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


"""
STEP = """        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(xb).squeeze(1), yb)
        loss.backward()
        optimizer.step()
"""
WAYS = {
    "parts of two tables": "for epoch in range(10):\n"
    "    for xb, yb in zip(table.split(32), price.split(32)):\n" + STEP,
    "rows by number": "for epoch in range(10):\n    order = torch.randperm(96)\n"
    "    for i in range(0, 96, 32):\n        xb, yb = table[order[i:i + 32]], price[order[i:i + 32]]\n"
    + STEP,
    "a dataset": """class Prices(Dataset):
    def __init__(self, x, y):
        self.x = x.float()  # kept whole
        self.y = y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


for epoch in range(10):
    for xb, yb in DataLoader(Prices(table, price), batch_size=32):
"""
    + STEP,
}


@pytest.mark.parametrize("way", WAYS)
def test_large_features_are_standardised(way: str, repairs: RepairServer, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PRICES + WAYS[way])
    found = repairs.fix(script)
    first = found["fixes"][0]
    assert (first["kind"], first["verdict"]) == ("standardise", "verified"), found["fixes"]
    name = "self.x" if way == "a dataset" else "table"
    made = f"{name} = (({name} - mean) / std.clamp(min=1e-6)).to({name}.dtype)"
    assert made in [line.strip() for line in next(iter(found["texts"].values())).splitlines()]


def test_inputs_are_standardised_from_outside_where_the_source_shows_no_table(
    repairs: RepairServer, tmp_path: Path
) -> None:
    script = tmp_path / "program.py"
    loop = """def batches():
    for _ in range(40):
        yield 30 + 220 * torch.rand(32, 2)


for xb in batches():
    yb = 3.1 * xb[:, 0]
""" + STEP.replace("        ", "    ")
    script.write_text(PRICES + loop)
    found = repairs.fix(script)
    tried = [f for f in found["fixes"] if f["kind"] == "standardise"]
    assert [(f["verdict"], f["patch"]) for f in tried] == [("verified", None)]
    assert "standardise" not in found["texts"]

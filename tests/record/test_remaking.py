"""A bad item that a DataLoader's worker made: the dataset is asked for it again, and recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.harness import ForkServer

PROGRAM = """
import random
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

class Curves(Dataset):
    def __init__(self):
        self.rows = torch.randn(64, 8)
        self.rows[{bad}] = 3.0
        {prepare}
    def __len__(self):
        return 64
    def __getitem__(self, i):
        row = self.rows[i]
        {make}
        return z, z.sum().sign()

torch.manual_seed(0)
loader = DataLoader(Curves(), batch_size=4, num_workers=2)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for x, y in loader:
    loss = ((model(x)[:, 0] - y) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
PLAIN = "z = (row - row.mean()) / row.std()  # HERE"


def first_of(
    programs: ForkServer, folder: Path, make: str, prepare: str = "pass", bad: int = 41, **more: Any
) -> tuple[dict[str, Any], list[str], str]:
    script = folder / "train.py"
    script.write_text(PROGRAM.format(make=make, prepare=prepare, bad=bad))
    result = programs.run(script, **more)
    assert result.report is not None
    return result.report["anomalies"][0], script.read_text().splitlines(), result.stderr


@pytest.mark.parametrize("bad", [2, 41])  # recorded as it happens, and when the step is repeated
@pytest.mark.parametrize("mode", ["auto", "trace"])
def test_the_line_of_the_dataset_is_named(
    programs: ForkServer, tmp_path: Path, bad: int, mode: str
) -> None:
    first, lines, told = first_of(programs, tmp_path, PLAIN, bad=bad, mode=mode)
    assert lines[first["location"]["line"] - 1].endswith("# HERE")
    assert (first["phase"], first["mechanism"]) == ("data", "division_by_zero")
    assert first["step"] == bad // 4
    assert f"asked for item {bad} again" in " ".join(told.split())
    chain = [(link["op"], link["location"]["line"]) for link in first["chain"] if link["location"]]
    loop = next(i for i, line in enumerate(lines, 1) if line.startswith("for x, y"))
    assert ("stack", loop) in chain


def test_so_is_a_line_of_numpy(programs: ForkServer, tmp_path: Path) -> None:
    make = """row = row.numpy()
        spread = row.std()
        z = torch.from_numpy((row - row.mean()) / spread)  # HERE"""
    first, lines, _ = first_of(programs, tmp_path, make)
    assert lines[first["location"]["line"] - 1].endswith("# HERE")
    assert (first["phase"], first["mechanism"]) == ("data", "division_by_zero")


def test_what_the_dataset_holds_is_followed_to_where_it_was_made(
    programs: ForkServer, tmp_path: Path
) -> None:
    prepare = "self.rows = self.rows / (self.rows != 3.0).float().amax(1, keepdim=True)  # HERE"
    first, lines, _ = first_of(programs, tmp_path, "z = row", prepare, bad=2)
    assert lines[first["location"]["line"] - 1].endswith("# HERE")
    assert first["mechanism"] == "division_by_zero"


@pytest.mark.parametrize(
    "make",
    [
        "assert get_worker_info() is not None\n        " + PLAIN,
        "z = row * (float('nan') if get_worker_info() and i == 41 else 1.0)",
    ],
    ids=["it wants a worker", "it does not come back"],
)
def test_else_the_report_says_that_a_worker_is_not_seen(
    programs: ForkServer, tmp_path: Path, make: str
) -> None:
    first, lines, told = first_of(programs, tmp_path, make)
    assert lines[first["location"]["line"] - 1].startswith("for x, y in loader")
    assert first["mechanism"] == "nonfinite_data"
    assert "those are not seen" in " ".join(told.split())


def test_the_program_does_not_notice(programs: ForkServer, tmp_path: Path) -> None:
    noisy = "print('item', i); random.random(); np.random.rand(); torch.rand(1)\n        " + PLAIN
    script = tmp_path / "train.py"
    end = "\nprint(torch.rand(1).item(), random.random(), np.random.rand())\n"
    begin = "import random, numpy as np, torch\nrandom.seed(1); np.random.seed(1)\n"
    script.write_text(begin + PROGRAM.format(make=noisy, prepare="pass", bad=41) + end)
    plain = programs.run(script, traced=False)
    watched = programs.run(script, on_anomaly="warn")
    assert sorted(plain.stdout.splitlines()) == sorted(watched.stdout.splitlines())
    assert "asked for item 41 again" in " ".join(watched.stderr.split())


def test_a_dataset_of_another_file_may_stand_on_the_same_line(
    programs: ForkServer, tmp_path: Path
) -> None:
    """The line of the step in one file, of the fault in the other."""
    silent = "np.seterr(all='ignore'); row = row.numpy(); spread = row.std()\n        "
    make = silent + "z = torch.from_numpy((row - row.mean()) / spread)  # HERE"
    text = PROGRAM.format(make=make, prepare="pass", bad=41)
    begin, rest = text.split("torch.manual_seed(0)")
    step = next(i for i, x in enumerate(rest.splitlines()) if "optimizer.step()" in x)
    fault = next(i for i, x in enumerate(begin.splitlines(), 1) if x.endswith("# HERE"))
    (tmp_path / "curves.py").write_text(begin)
    imports = "import torch; from torch.utils.data import DataLoader; from curves import Curves"
    lines = [imports + "; torch.manual_seed(0)", *rest.splitlines()[1:]]
    lines[:0] = [""] * (fault - step - 1)
    assert lines[fault - 1].strip() == "optimizer.step()"
    (tmp_path / "train.py").write_text("\n".join(lines))
    report = programs.run(tmp_path / "train.py", mode="auto").report
    assert report is not None
    place = report["anomalies"][0]["location"]
    assert (Path(place["file"]).name, place["line"]) == ("curves.py", fault)

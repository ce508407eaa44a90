"""A bad step is repeated in place where the loop allows it, elsewhere where it does not."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.harness import ForkServer, Result

# 40 rows, one of them all zero: its norm is 0, and the division makes a NaN.
DATA = """
import itertools, random
import torch, numpy as np
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, Sampler
torch.manual_seed(3); np.random.seed(3); random.seed(3)
X = torch.rand(80, 4) + 0.1
X[57] = 0
Y = torch.rand(80)
model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 1))
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
def loss_of(x, y):
    unit = x / x.norm(dim=1, keepdim=True)  # HERE
    return (model(unit).squeeze(-1) - y).square().mean()
def train(x, y):
    opt.zero_grad()
    loss_of(x, y).backward()
    opt.step()
"""
LOADER = "loader = DataLoader(TensorDataset(X, Y), batch_size=8, shuffle=True)\n"
LOOPS: dict[str, tuple[str, str]] = {
    "for": ("rewind", LOADER + "for x, y in loader: train(x, y)"),
    "enumerate": ("rewind", LOADER + "for i, (x, y) in enumerate(loader): train(x, y)"),
    "two epochs": ("rewind", LOADER + "for e in range(2):\n    for x, y in loader: train(x, y)"),
    "zip": ("rewind", LOADER + "for (x, y), _ in zip(loader, itertools.count()): train(x, y)"),
    "iter and next": (
        "rewind",
        LOADER + "it = iter(loader)\nfor _ in range(14):\n    x, y = next(it, (X[:8], Y[:8])); train(x, y)",
    ),
    "cycle": ("rewind", LOADER + "for x, y in itertools.islice(itertools.cycle(loader), 15): train(x, y)"),
    "not shuffled": ("rewind", "for x, y in DataLoader(TensorDataset(X, Y), batch_size=8): train(x, y)"),
    "workers": (
        "rewind",
        "for x, y in DataLoader(TensorDataset(X, Y), batch_size=8, shuffle=True, num_workers=2): train(x, y)",
    ),
    "augmenting dataset": (
        "rewind",
        """
        class Noisy(Dataset):
            def __len__(self): return 80
            def __getitem__(self, i):
                return X[i] * (1 + 0.1 * torch.rand(()) + 0.1 * random.random() + 0.1 * np.random.rand()), Y[i]
        for x, y in DataLoader(Noisy(), batch_size=8, shuffle=True): train(x.float(), y)
        """,
    ),
    "iterable dataset": (
        "rewind",
        """
        class Stream(IterableDataset):
            def __iter__(self): return iter(zip(X, Y))
        for x, y in DataLoader(Stream(), batch_size=8): train(x, y)
        """,
    ),
    "custom sampler": (
        "rewind",
        """
        class Backwards(Sampler):
            def __iter__(self): return iter(range(79, -1, -1))
            def __len__(self): return 80
        for x, y in DataLoader(TensorDataset(X, Y), batch_size=8, sampler=Backwards()): train(x, y)
        """,
    ),
    "drawn from the random numbers": (
        "body",
        "torch.manual_seed(1)\nfor i in range(60):\n    rows = torch.randint(0, 80, (4,)); train(X[rows], Y[rows])",
    ),
    "drawn from a NumPy Generator": (
        "body",
        "rng = np.random.default_rng(1)\nfor i in range(60):\n    rows = rng.integers(0, 80, 4); train(X[rows], Y[rows])",
    ),
    "losses read after the step": (
        "rewind",
        LOADER + """
        for x, y in loader:
            loss = loss_of(x, y); opt.zero_grad(); loss.backward(); opt.step(); loss.item()
        """,
    ),
    "losses read after a step with drawn rows": (
        "body",
        """
        torch.manual_seed(1)
        for i in range(60):
            rows = torch.randint(0, 80, (4,))
            loss = loss_of(X[rows], Y[rows]); opt.zero_grad(); loss.backward(); opt.step(); loss.item()
        """,
    ),
    "gradient accumulation": (
        "rewind",
        LOADER + """
        for i, (x, y) in enumerate(loader):
            (loss_of(x, y) / 2).backward()
            if i % 2:
                opt.step(); opt.zero_grad()
        """,
    ),
    "the batch was changed in place": (
        "body",
        "for x, y in DataLoader(TensorDataset(X, Y), batch_size=8, num_workers=1): x.mul_(2); train(x, y)",
    ),
    "rows by hand": ("body", "for i in range(0, 80, 8): train(X[i:i + 8], Y[i:i + 8])"),
    "one batch fetched ahead": (
        "rerun",
        LOADER + """
        it = iter(loader)
        ahead = next(it)
        while ahead is not None:
            x, y = ahead
            ahead = next(it, None)
            train(x, y)
        """,
    ),
    "two optimizers": (
        "body",
        LOADER + """
        other = nn.Linear(4, 1)
        opt2 = torch.optim.SGD(other.parameters(), lr=0.1)
        for x, y in loader:
            opt2.zero_grad(); other(x).mean().backward(); opt2.step()
            train(x, y)
        """,
    ),
    "without an optimizer": (
        "rerun",
        """
        for x, y in DataLoader(TensorDataset(X, Y), batch_size=8):
            model.zero_grad()
            loss_of(x, y).backward()
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.01 * p.grad
        """,
    ),
    "closures": (
        "rewind",
        """
        opt = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=2)
        for x, y in DataLoader(TensorDataset(X, Y), batch_size=8):
            def closure():
                opt.zero_grad(); loss = loss_of(x, y); loss.backward(); return loss
            opt.step(closure)
        """,
    ),
    "closure of adam": (
        "rewind",
        LOADER + """
        for x, y in loader:
            def closure():
                opt.zero_grad(); loss = loss_of(x, y); loss.backward(); return loss
            opt.step(closure)
        """,
    ),
    "closure that fails when it is called again": (
        "rerun",
        """
        opt = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=2)
        for x, y in DataLoader(TensorDataset(X, Y), batch_size=8):
            batches = iter([(X[:8], Y[:8]), (x, y), (x, y), (x, y)])
            def closure():
                opt.zero_grad(); loss = loss_of(*next(batches)); loss.backward(); return loss
            opt.step(closure)
        """,
    ),
    "optimizer that moves before its closure": (
        "rerun",
        LOADER + """
        class Sharp(torch.optim.SGD):
            def step(self, closure):
                with torch.no_grad():
                    for p in model.parameters(): p.add_(0.01)
                loss = closure()
                with torch.no_grad():
                    for p in model.parameters(): p.sub_(0.01)
                super().step()
                return loss
        opt = Sharp(model.parameters(), lr=0.01)
        for x, y in loader:
            def closure():
                opt.zero_grad(); loss = loss_of(x, y); loss.backward(); return loss
            opt.step(closure)
        """,
    ),
    "an exception of the script": (
        "rerun",
        LOADER + """
        for x, y in loader:
            loss = loss_of(x, y)
            if loss.isnan():
                raise ValueError("loss is nan")
            opt.zero_grad(); loss.backward(); opt.step()
        """,
    ),
}  # fmt: skip


def program(folder: Path, loop: str) -> Path:
    parts = [textwrap.dedent(part) for part in loop.split("\n        ", 1)]
    text = DATA + (
        parts[0] + "\n" + textwrap.dedent("        " + loop.split("\n        ", 1)[1])
        if "\n        " in loop
        else loop
    )
    path = folder / "script.py"
    path.write_text(text + "\n")
    return path


def first(result: Result) -> dict[str, Any]:
    assert result.report is not None, result.stderr
    assert result.report["anomalies"], result.stderr
    found: dict[str, Any] = result.report["anomalies"][0]
    return found


@pytest.mark.parametrize("loop", LOOPS, ids=lambda name: name.replace(" ", "_"))
def test_origin_is_found_in_a_loop(loop: str, programs: ForkServer, tmp_path: Path) -> None:
    how, text = LOOPS[loop]
    script = program(tmp_path, text)
    traced = programs.run(script, mode="trace")
    watched = programs.run(script, mode="auto", live_steps=0)
    expected, seen = first(traced), first(watched)
    line = 1 + script.read_text().splitlines().index(
        next(x for x in script.read_text().splitlines() if "# HERE" in x)
    )
    assert seen["location"]["line"] == line
    for key in ("phase", "step", "mechanism", "op", "sink"):
        assert seen[key] == expected[key], key
    assert watched.report is not None
    assert watched.report["reproduced"] == how
    assert watched.code == 3


def test_the_next_batch_is_not_taken_for_the_one_that_failed(
    programs: ForkServer, tmp_path: Path
) -> None:
    """A loop by hand goes on to the next batch when it is asked for the same step again."""
    loop = "X[62] = 0\nX[66] = 0\nfor i in range(0, 80, 8): train(X[i:i + 8], Y[i:i + 8])"
    script = program(tmp_path, loop)
    expected = first(programs.run(script, mode="trace"))
    watched = programs.run(script, mode="auto", live_steps=0)
    seen = first(watched)
    assert watched.report is not None
    assert (seen["step"], watched.report["reproduced"]) == (7, "body")
    for key in ("sample", "first_index", "operands"):
        assert seen[key] == expected[key], key


def test_a_whole_data_set_in_every_step_is_repeated_in_place(
    programs: ForkServer, tmp_path: Path
) -> None:
    loop = "X[57] = 1.0\nfor i in range(9):\n    Z = X * (i < 6)\n    train(Z, Y)"
    watched = programs.run(program(tmp_path, loop), mode="auto", live_steps=0)
    assert watched.report is not None
    assert (first(watched)["step"], watched.report["reproduced"]) == (6, "body")


def test_the_loss_of_a_step_that_is_recorded_from_its_update_on_is_its_own(
    programs: ForkServer, tmp_path: Path
) -> None:
    """Gradients large enough to overflow in the update: the recorder comes on in the middle."""
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import torch
        from torch import nn
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        for step in range(40):
            if step == 30:
                optimizer.param_groups[0]["lr"] = 2.0
            x = torch.randn(32, 6)
            loss = (net(x)[:, 0] - 5 * x.sum(1)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(repr(loss.item()))
        """)
    )
    result = programs.run(script, mode="auto")
    assert result.report is not None
    shown = [float(line) for line in result.stdout.split()]
    told = {row["step"]: row["loss"] for row in result.report["history"]}
    failed = result.report["anomalies"][0]["step"]
    assert failed > 31
    assert told[failed - 1] == shown[failed - 1]
    assert shown[failed - 1] > 1e6


def test_what_a_repeated_step_prints_is_seen_once(programs: ForkServer, tmp_path: Path) -> None:
    loop = (
        LOADER
        + """
for x, y in loader:
    loss = loss_of(x, y)
    print(f"loss {loss.item():.5f}")
    opt.zero_grad(); loss.backward(); opt.step()
"""
    )
    script = tmp_path / "script.py"
    script.write_text(DATA + loop)
    plain = programs.run(script, traced=False)
    watched = programs.run(script, mode="auto")
    assert watched.report is not None
    assert watched.report["reproduced"] == "rewind"
    said = watched.stdout.splitlines()
    assert said == plain.stdout.splitlines()[: len(said)]
    assert said[-1] == "loss nan"
    assert said.count("loss nan") == 1

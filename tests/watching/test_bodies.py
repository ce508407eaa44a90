"""The statements of a turn are executed once more in place, and nothing of it is left."""

from __future__ import annotations

import contextlib
import sqlite3
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.harness import ForkServer, Result

# The row of step 37 is all zero: its norm is 0, and the division makes a NaN.
SETUP = """
import torch
from torch import nn
torch.manual_seed(3)
X = torch.rand(400, 4) + 0.1
X[300] = 0
Y = torch.rand(400)
model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 1))
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
def loss_of(x, y):
    return (model(x / x.norm(dim=1, keepdim=True)).squeeze(-1) - y).square().mean()  # HERE
batches = [(X[i:i + 8], Y[i:i + 8]) for i in range(0, 400, 8)]
"""
LOOPS = {
    "a list of batches": """
        for x, y in batches:
            loss = loss_of(x, y); opt.zero_grad(); loss.backward(); opt.step()
        """,
    "a generator": """
        def rows():
            for x, y in batches: yield x, y
        for x, y in rows():
            loss = loss_of(x, y); opt.zero_grad(); loss.backward(); opt.step()
        """,
    "next by hand": """
        it = iter(batches)
        for i in range(50):
            x, y = next(it)
            loss = loss_of(x, y); opt.zero_grad(); loss.backward(); opt.step()
        """,
    "a while loop with a counter": """
        i = 0
        while i < 50:
            x, y = batches[i]
            i += 1
            loss = loss_of(x, y); opt.zero_grad(); loss.backward(); opt.step()
        """,
    "a running mean and a list of losses": """
        mean, losses = 0.0, []
        for x, y in batches:
            loss = loss_of(x, y)
            mean = 0.9 * mean + 0.1 * loss.item()
            losses.append(loss.item())
            opt.zero_grad(); loss.backward(); opt.step()
        """,
    "a function of model and batch": """
        def train_step(model, x, y):
            x = x * 1.0
            loss = loss_of(x, y)
            opt.zero_grad(); loss.backward(); opt.step()
            return loss.item()
        for x, y in batches: train_step(model, x, y)
        """,
    "a trainer": """
        class Trainer:
            def __init__(self): self.steps, self.seen = 0, []
            def step(self, x, y):
                self.steps += 1
                self.seen.append(x)
                loss = loss_of(x, y)
                opt.zero_grad(); loss.backward(); opt.step()
            def fit(self):
                for batch in batches: self.step(*batch)
        Trainer().fit()
        """,
    "a loop over optimizers": """
        for x, y in batches:
            opt.zero_grad()
            loss_of(x, y).backward()
            for o in [opt]: o.step()
        """,
    "a closure of LBFGS": """
        opt = torch.optim.LBFGS(model.parameters(), lr=0.01, max_iter=1)
        for x, y in batches:
            def closure():
                opt.zero_grad(); loss = loss_of(x, y); loss.backward(); return loss
            opt.step(closure)
        """,
    "a try and a with": """
        for x, y in batches:
            try:
                with torch.enable_grad():
                    if len(x): loss_of(x, y).backward(); opt.step(); opt.zero_grad()
            except ValueError:
                pass
        """,
    "a counter of an outer function": """
        def trainer():
            count = 0
            def train(x, y):
                nonlocal count
                count += 1
                loss = loss_of(x, y) * (1 if count == 38 else 2)
                opt.zero_grad(); loss.backward(); opt.step()
            return train
        train = trainer()
        for x, y in batches: train(x, y)
        """,
    "a global counter": """
        count = 0
        def train(x, y):
            global count
            count += 1
            loss = loss_of(x, y) * (1 if count == 38 else 2)
            opt.zero_grad(); loss.backward(); opt.step()
        for x, y in batches: train(x, y)
        """,
    "batches that are awaited": """
        import asyncio
        async def fetch(i):
            await asyncio.sleep(0)
            return batches[i]
        async def main():
            for i in range(50):
                x, y = await fetch(i)
                loss = loss_of(x, y); opt.zero_grad(); loss.backward(); opt.step()
        asyncio.run(main())
        """,
    "drawn here or there, and moved": """
        it, short = iter(batches), iter(batches[:0])
        for i in range(50):
            try:
                x, y = next(short)
            except StopIteration:
                x, y = next(it)
            x = x.to(torch.float32)
            loss = loss_of(x, y); opt.zero_grad(); loss.backward(); opt.step()
        """,
    "a loader, and a counter of one's own": """
        from torch.utils.data import DataLoader, TensorDataset
        step = 0
        for x, y in DataLoader(TensorDataset(X, Y), batch_size=8):
            loss = loss_of(x, y) * (1 if step == 37 else 2)
            opt.zero_grad(); loss.backward(); opt.step()
            step += 1
        """,
    "a seed for each step": """
        for i, (x, y) in enumerate(batches):
            torch.manual_seed(i)
            loss = loss_of(x, y); opt.zero_grad(); loss.backward(); opt.step()
        """,
    "plain numbers read from a file": """
        import tempfile
        path = tempfile.mktemp()
        with open(path, "w") as f: f.writelines("nan\\n" if i == 37 else f"{i}\\n" for i in range(50))
        with open(path) as f:
            for line in f:
                x = torch.tensor([float(line)])  # HERE
                loss = (model[3].weight * x).mean(); opt.zero_grad(); loss.backward(); opt.step()
        """,
    "two optimizers in turn": """
        judge = nn.Linear(4, 1)
        opt2 = torch.optim.SGD(judge.parameters(), lr=0.01)
        for i, (x, y) in enumerate(batches):
            noise = torch.randn(8, 4)
            opt2.zero_grad(); judge(noise).mean().backward(); opt2.step()
            x = x + 0 * noise
            opt.zero_grad(); loss_of(x, y).backward(); opt.step()
        """,
    "rows that are drawn": """
        rows = list(range(300)) + [300] * 1
        for i in range(50):
            x, y = batches[i] if i == 37 else (X[torch.randint(0, 300, (8,))], Y[:8])
            loss = loss_of(x, y); opt.zero_grad(); loss.backward(); opt.step()
        """,
    "rows that the program's own generators draw": """
        import random, numpy
        own, old = random.Random(5), numpy.random.RandomState(5)
        new, g = numpy.random.default_rng(5), torch.Generator().manual_seed(5)
        for i in range(50):
            rows = torch.randint(0, 300, (5,), generator=g).tolist()
            rows += [own.randrange(300), old.randint(300), int(new.integers(300))]
            if i == 37: rows[2] = 300
            x, y = X[rows], Y[rows]
            loss = loss_of(x, y); opt.zero_grad(); loss.backward(); opt.step()
        """,
}


def run(
    programs: ForkServer, folder: Path, loop: str, traced: bool = True, **options: Any
) -> tuple[Result, int]:
    script = folder / "script.py"
    script.write_text(SETUP + textwrap.dedent(loop))
    lines = script.read_text().splitlines()
    here = 1 + max(i for i, line in enumerate(lines) if "# HERE" in line)
    options = {"mode": "auto", **options} if traced else {}
    return programs.run(script, traced=traced, **options), here


@pytest.mark.parametrize("loop", LOOPS, ids=lambda name: name.replace(" ", "_"))
def test_a_turn_is_repeated_in_place_in(loop: str, programs: ForkServer, tmp_path: Path) -> None:
    result, here = run(programs, tmp_path, LOOPS[loop])
    assert result.report is not None
    assert result.report["anomalies"], result.stderr
    found = result.report["anomalies"][0]
    at = 75 if "two" in loop else 37  # each optimizer's step counts
    assert (found["location"]["line"], found["step"]) == (here, at)
    assert result.report["reproduced"] == "body"
    assert result.code == 3


WRAPPER = """
class Wrapped:
    def __init__(self, optimizer): self.optimizer = optimizer
    def zero_grad(self): self.optimizer.zero_grad()
    def step(self): self.optimizer.step()
def backward(loss): loss.backward()
"""


def test_a_librarys_wrapper_around_the_optimizer_stands_in_no_ones_way(
    programs: ForkServer, tmp_path: Path
) -> None:
    library = tmp_path / "site-packages"
    library.mkdir()
    (library / "wrapper.py").write_text(WRAPPER)
    loop = """
        import sys; sys.path.append("site-packages")
        import wrapper
        wrapped = wrapper.Wrapped(opt)
        for x, y in batches:
            loss = loss_of(x, y); wrapped.zero_grad(); wrapper.backward(loss); wrapped.step()
        """
    result, here = run(programs, tmp_path, loop)
    assert result.report is not None
    assert result.report["anomalies"][0]["location"]["line"] == here
    assert result.report["reproduced"] == "body"


def test_a_program_that_goes_on_finds_everything_as_it_was(
    programs: ForkServer, tmp_path: Path
) -> None:
    """With `warn`, the NaN goes into the weights, as without whynan; all the rest is the same."""
    loop = """
        import random; random.seed(1)
        import numpy
        seen, counts, sums = [], {"steps": 0}, numpy.zeros(8)
        def add_up(y): sums[:] += y.numpy()
        for x, y in batches:
            add_up(y)
            seen.append(random.random())
            counts["steps"] += 1
            print("step", counts["steps"])
            loss = loss_of(x, y); opt.zero_grad(); loss.backward(); opt.step()
        print(seen, counts, sums, torch.rand(3), random.random(), model[1].num_batches_tracked)
        """
    plain, _ = run(programs, tmp_path, loop, traced=False)
    watched, _ = run(programs, tmp_path, loop, on_anomaly="warn")
    assert watched.report is not None
    assert watched.report["reproduced"] == "body"
    assert watched.stdout == plain.stdout


OUTSIDE = {
    "a database": """
        import sqlite3
        rows = sqlite3.connect("rows.db", isolation_level=None)
        rows.execute("CREATE TABLE IF NOT EXISTS steps (step INTEGER)")
        def note(i): rows.execute("INSERT INTO steps VALUES (?)", (i,))
        """,
    "a file of the system's": """
        import os
        file = os.open("rows.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        def note(i): os.write(file, b"%d\\n" % i)
        """,
}


@pytest.mark.parametrize("policy", ["stop", "warn"])
@pytest.mark.parametrize("place", OUTSIDE.values(), ids=lambda text: text.split()[1])
def test_what_is_left_outside_is_left_once(
    place: str, policy: str, programs: ForkServer, tmp_path: Path
) -> None:
    loop = textwrap.dedent(place) + textwrap.dedent("""
        for i, (x, y) in enumerate(batches):
            note(i)
            loss = loss_of(x, y); opt.zero_grad(); loss.backward(); opt.step()
        """)
    run(programs, tmp_path, loop, rerun=False, on_anomaly=policy)
    if (tmp_path / "rows.db").exists():
        with contextlib.closing(sqlite3.connect(tmp_path / "rows.db")) as rows:
            noted = [step for (step,) in rows.execute("SELECT step FROM steps")]
    else:
        noted = [int(line) for line in (tmp_path / "rows.txt").read_text().split()]
    assert len(noted) >= (38 if policy == "stop" else 50)
    assert noted == list(range(len(noted)))


def test_what_would_be_written_to_a_file_is_not_written_twice(
    programs: ForkServer, tmp_path: Path
) -> None:
    loop = """
        log = open("log.txt", "w")
        def note(text): log.write(text); log.flush()
        for i, (x, y) in enumerate(batches):
            note(f"{i}\\n")
            loss = loss_of(x, y); opt.zero_grad(); loss.backward(); opt.step()
        """
    result, _ = run(programs, tmp_path, loop, rerun=False)
    assert result.report is not None
    assert result.report["reproduced"] == "no"
    assert "--no-rerun" in result.stderr
    lines = (tmp_path / "log.txt").read_text().split()
    assert lines == [str(i) for i in range(len(lines))]

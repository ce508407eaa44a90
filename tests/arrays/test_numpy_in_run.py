"""`whynan run` on programs that use NumPy, alone or before torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.harness import ForkServer, Result

# Each line that makes the first bad value ends with `# HERE`.
HARMFUL: dict[str, tuple[str, str, str]] = {
    "reciprocal of an empty bin": ("division_by_zero", "observed", """
        import numpy as np
        per_bin = np.array([4.0, 1.0, 0.0, 8.0], dtype=np.float32)
        weight = np.divide(1.0, per_bin)  # HERE
        print(f"weights: {weight}")
        print(f"NaN among them: {np.isnan(weight).sum()}")
    """),
    "root of a rounding error": ("sqrt_negative", "observed", """
        import numpy as np
        variance = np.array([-1.0, 16.0, 25.0], dtype=np.float32)
        spread = np.sqrt(variance)  # HERE
        print("spread", spread, "bad:", np.isnan(spread).sum())
    """),
    "square of a large force": ("overflow", "observed", """
        import numpy as np
        force = np.array([2e38, 3e38], dtype=np.float32)
        power = force * force  # HERE
        print(f"power: {power}")
    """),
    "a log two functions away": ("log_nonpositive", "observed", """
        import numpy as np

        class Model:
            def __init__(self, n):
                self.p = np.zeros(n)

            def loss(self):
                return -np.log(self.p).mean()  # HERE

        def report(model):
            print("loss", model.loss())

        report(Model(3))
    """),
    "written by logging": ("log_nonpositive", "observed", """
        import logging
        import numpy as np
        logging.basicConfig(level=logging.INFO)
        score = np.log(np.zeros(2))  # HERE
        logging.info("score %s", score)
    """),
    "asked for, and raised": ("sqrt_negative", "exception", """
        import numpy as np
        slope = np.array([0.1, 0.5, 1.2])
        height = np.sqrt(1 - slope**2)  # HERE
        total = height.sum()
        if np.isnan(total):
            raise ValueError("total is NaN")
    """),
    "a diagonal over a sum": ("division_by_zero", "observed", """
        import numpy as np
        confusion = np.array([[5.0, 0.0], [2.0, 0.0]])
        precision = np.diag(confusion) / confusion.sum(axis=0)  # HERE
        print(precision)
    """),
    "saved": ("division_by_zero", "observed", """
        import io
        import numpy as np
        counts = np.array([3, 0, 2])
        weights = 1.0 / counts  # HERE
        np.save(io.BytesIO(), weights)
    """),
    "a result that nothing reads": ("division_by_zero", "output", """
        import numpy as np
        share = np.array([3.0, 0.0]) / np.zeros(2)  # HERE
    """),
    "a result of a program that exits": ("log_nonpositive", "output", """
        import sys
        import numpy as np
        entropy = -np.log(np.zeros(3)).sum()  # HERE
        _ = np.log(np.zeros(3))
        sys.exit(0)
    """),
    "from a generator, kept in a list": ("division_by_zero", "observed", """
        import pprint
        import numpy as np
        def rates():
            for n in range(3):
                yield 1.0 / np.array([float(n)])  # HERE
        seen = []
        for rate in rates():
            seen.append(rate)
        pprint.pprint(seen)
    """),
    "two statements on a line, in a thread": ("log_nonpositive", "observed", """
        import threading
        import numpy as np
        def work():
            r = np.log(np.zeros(2)); print("thread", r)  # HERE
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    """),
    "an attribute behind a decorator": ("division_by_zero", "observed", """
        import functools
        import numpy as np
        def plain(function):
            @functools.wraps(function)
            def inner(*args):
                return function(*args)
            return inner
        class Scaler:
            @plain
            def fit(self, x):
                self.x = (x - x.min()) / (x.max() - x.min())  # HERE
            @property
            def mean(self):
                return self.x.mean()
        scaler = Scaler()
        scaler.fit(np.full(4, 3.0))
        print(f"mean {scaler.mean:.2f}")
    """),
    "diverging descent": ("overflow", "observed", """
        import numpy as np
        x = np.array([[300.0, 1.0], [-200.0, 2.0], [100.0, -1.0]])
        w = np.ones(2)
        for step in range(200):
            error = x @ w
            w = w - x.T @ error  # HERE
        print(w)
    """),
    "an exception of another library": ("log_nonpositive", "exception", """
        import numpy as np
        from scipy import linalg
        affinity = np.log(np.eye(2))  # HERE
        print(linalg.svdvals(affinity))
    """),
    "errors asked for": ("division_by_zero", "exception", """
        import numpy as np
        np.seterr(all="raise")
        def rate(a, b):
            return a / b  # HERE
        print(rate(np.ones(2), np.array([1.0, 0.0])))
    """),
    "warnings as errors": ("overflow", "exception", """
        import warnings
        import numpy as np
        warnings.simplefilter("error")
        x = np.array([1000.0, 2.0], np.float32)
        print(np.exp(x).sum())  # HERE
    """),
}  # fmt: skip

HEALTHY: dict[str, str] = {
    "the recall of a class that does not occur": """
        import numpy as np
        table = np.array([[2, 1, 0], [0, 3, 0], [0, 0, 0]])
        print(table.diagonal() / table.sum(1))
    """,
    "chosen by where": """
        import numpy as np
        x = np.array([0.0, 1.0])
        y = np.where(x > 0, np.log(x), 0.0)
        print(y, "not printed: nan", np.inf)
    """,
    "cleaned in a function": """
        import numpy as np
        def rates(a, b):
            r = a / b
            r[~np.isfinite(r)] = 0
            return r
        missing = np.array([1.0, np.nan])
        print(rates(np.ones(2), np.zeros(2)), missing, np.nanmean(missing))
    """,
    "replaced by name": """
        import numpy as np
        q = np.log(np.array([0.0, 2.0]))
        q = np.nan_to_num(q)
        print(q, float("inf"))
    """,
    "looked at by functions that know": """
        import numpy as np
        ratio = np.array([1.0, 0.0]) / np.array([2.0, 0.0])
        print("mean", np.nanmean(ratio), "nan count", np.isnan(ratio).sum())
        print(f"nan: {np.isnan(ratio).sum()}")
    """,
    "meant": """
        import numpy as np
        with np.errstate(divide="ignore"):
            print(np.ones(2) / np.zeros(2))
    """,
    "filtered": """
        import warnings
        import numpy as np
        warnings.filterwarnings("ignore")
        print(np.ones(2) / np.zeros(2))
    """,
    "recorded by the program": """
        import sys
        import warnings
        import numpy as np
        with warnings.catch_warnings(record=True) as log:
            r = np.ones(2) / np.zeros(2)
        print(r, len(log))
        sys.exit(7)
    """,
    "overflow absorbed by a division": """
        import numpy as np
        class Unit:
            def forward(self, x):
                self.out = 1.0 / (1.0 + np.exp(-x))
                return self.out
        unit, best = Unit(), np.inf
        for i in range(3):
            print(unit.forward(np.array([-1000.0, 3.0])), best)
    """,
    "inside a library": """
        import numpy as np
        from scipy import optimize
        r = optimize.minimize(lambda p: np.exp(p[0] * 1000) + (p[0] + 1) ** 2, [1.0], method="Powell")
        print(r.success, np.nan)
    """,
    "cleaned in a loop": """
        import numpy as np
        rows, best = [], float("inf")
        for i in range(3):
            r = np.ones(2) / np.array([i, 1.0])
            r = np.minimum(r, 5.0)
            rows.append(r)
        print(rows, best, np.nan)
    """,
    "a marker beside a column that was masked": """
        import numpy as np
        table = np.array([[1.0, np.nan], [0.0, 2.0]])
        table[:, 0] = np.where(table[:, 0] > 0, np.log(table[:, 0]), 0)
        print(table)
    """,
    "two warnings on one line": """
        import numpy as np
        for a in (np.ones(1), np.ones(2)):
            b = np.nan_to_num(a / np.zeros(1))
            m = np.nan_to_num(a[:0].mean())
        print(b, m)
    """,
}  # fmt: skip


def run(programs: ForkServer, folder: Path, text: str, **options: Any) -> tuple[Result, Path]:
    script = folder / "script.py"
    script.write_text(dedent(text).lstrip())
    return programs.run(script, **options), script


def bare(result: Result, script: Path) -> str:
    """Standard error; the harness runs plain programs by their relative path."""
    return result.stderr.replace(str(script), script.name)


def line_of(script: Path) -> int:
    lines = script.read_text().splitlines()
    return next(i for i, line in enumerate(lines, 1) if line.endswith("# HERE"))


@pytest.mark.parametrize("name", HARMFUL)
def test_harm_names_the_line_and_the_mechanism(
    programs: ForkServer, tmp_path: Path, name: str
) -> None:
    mechanism, sink, text = HARMFUL[name]
    result, script = run(programs, tmp_path, text, mode="auto")
    assert result.code == 3
    assert result.report is not None
    (anomaly,) = result.report["anomalies"]
    assert (anomaly["location"]["line"], anomaly["mechanism"]) == (line_of(script), mechanism)
    assert (anomaly["sink"], anomaly["phase"]) == (sink, "data")
    assert "torch" not in " ".join(f["title"] for f in anomaly["fixes"])
    plain = programs.run(script, traced=False)
    assert result.stdout == plain.stdout
    if plain.code == 0:  # whynan's own words come after the program's
        assert bare(result, script).startswith(bare(plain, script))


@pytest.mark.parametrize("name", HEALTHY)
def test_a_warning_without_harm_is_left_to_python(
    programs: ForkServer, tmp_path: Path, name: str
) -> None:
    result, script = run(programs, tmp_path, HEALTHY[name], mode="auto")
    plain = programs.run(script, traced=False)
    assert (result.code, result.stdout) == (plain.code, plain.stdout)
    assert bare(result, script) == bare(plain, script)


LOOP = """
torch.manual_seed(0)
net = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
"""
INTO_TORCH: dict[str, tuple[str, str]] = {
    "a column of a table": ("log_nonpositive", """
income = np.array([900.0, 0.0, 1200.0, -1.0])
age = np.array([0.3, 0.4, 0.5, 0.6])
table = np.column_stack([age, np.log(income), age]).astype(np.float32)  # HERE
x = torch.from_numpy(table)
for step in range(3):
    loss = net(x).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""),
    "standardised in between": ("log_nonpositive", """
def prepare(raw):
    logged = np.log(raw)  # HERE
    return ((logged - logged.mean(0)) / logged.std(0)).astype(np.float32)

def train(data):
    for step in range(3):
        loss = net(torch.as_tensor(data)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()

def main():
    data = prepare(np.arange(12.0).reshape(4, 3))
    train(data)

main()
"""),
    "in windows of a series, several times": ("log_nonpositive", """
def windows(values):
    logged = np.log1p(values)  # HERE
    return np.stack([logged[i : i + 3] for i in range(len(logged) - 3)])

series = np.arange(12.0, dtype=np.float32)
series[5] = -9999
x = torch.from_numpy(windows(series))
for step in range(3):
    opt.zero_grad()
    net(x).mean().backward()
    opt.step()
"""),
    "in a dataset": ("division_by_zero", """
class Rows(torch.utils.data.Dataset):
    def __init__(self):
        self.rows = np.random.default_rng(1).normal(size=(24, 3)).astype(np.float32)
        self.rows[13] = 1.5

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        return (row - row.mean()) / row.std()  # HERE

for x in torch.utils.data.DataLoader(Rows(), batch_size=8, shuffle=True):
    opt.zero_grad()
    net(x).mean().backward()
    opt.step()
"""),
    "through SciPy": ("log_nonpositive", """
from scipy import ndimage
signal = np.log(np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0]))  # HERE
smooth = ndimage.shift(signal, 1, order=0, cval=0.0)
x = torch.tensor(smooth.reshape(2, 3), dtype=torch.float32)
for step in range(3):
    opt.zero_grad()
    net(x).mean().backward()
    opt.step()
"""),
}  # fmt: skip


@pytest.mark.parametrize("mode", ["auto", "trace"])
@pytest.mark.parametrize("name", INTO_TORCH)
def test_the_chain_crosses_from_torch_to_numpy(
    programs: ForkServer, tmp_path: Path, name: str, mode: str
) -> None:
    mechanism, text = INTO_TORCH[name]
    result, script = run(
        programs, tmp_path, f"import numpy as np\nimport torch\n{LOOP}{text}", mode=mode
    )
    assert result.report is not None
    anomaly = result.report["anomalies"][0]
    assert (anomaly["location"]["line"], anomaly["mechanism"]) == (line_of(script), mechanism)
    assert (anomaly["phase"], anomaly["sink"]) == ("data", "loss")
    assert "entry" in [link["op"] for link in anomaly["chain"]] or any(
        "lift_fresh" in link["op"] for link in anomaly["chain"]
    )


CLEANED = """
def features(income, score):
    logged = np.log(income)
    logged[~np.isfinite(logged)] = 0
    return np.column_stack([logged, score, score]).astype(np.float32)

income, score = np.array([0.0, {income}]), np.array([np.nan, 2.0])
x = torch.from_numpy(features(income, score))
loss = net(x).sum()
loss.backward()
opt.step()
"""


@pytest.mark.parametrize("income", [2.0, -1.0])
def test_a_value_that_may_be_another_is_not_named_as_the_origin(
    programs: ForkServer, tmp_path: Path, income: float
) -> None:
    text = f"import numpy as np\nimport torch\n{LOOP}{CLEANED.format(income=income)}"
    result, _ = run(programs, tmp_path, text)
    assert result.report is not None
    anomaly = result.report["anomalies"][0]
    assert anomaly["mechanism"] == "nonfinite_data"
    assert "torch.from_numpy" in anomaly["location"]["source"]
    said = " ".join(result.stderr.split())
    assert "unknown: whether it is the value of which NumPy said" in said


def test_a_repeated_turn_crosses_too(programs: ForkServer, tmp_path: Path) -> None:
    text = """
raw = np.random.default_rng(0).uniform(1, 2, size=(50, 4, 3))
raw[40, 2, 1] = -0.5
for step in range(50):
    x = torch.tensor(np.log(raw[step]), dtype=torch.float32)  # HERE
    loss = net(x).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
    result, script = run(
        programs, tmp_path, f"import numpy as np\nimport torch\n{LOOP}{text}", mode="auto"
    )
    assert result.report is not None
    assert result.report["reproduced"] == "body"
    anomaly = result.report["anomalies"][0]
    assert (anomaly["location"]["line"], anomaly["mechanism"]) == (
        line_of(script),
        "log_nonpositive",
    )
    assert (anomaly["call"], anomaly["step"]) == ("np.log", 40)
    assert anomaly["first_index"] == [2, 1]


def test_a_missing_value_is_not_blamed_on_a_log_that_was_masked(
    programs: ForkServer, tmp_path: Path
) -> None:
    text = """
x = np.array([[1.0, np.nan, 2.0], [2.0, 3.0, 4.0]], np.float32)
z = np.where(x > 1, np.log(x - 1), 0)
w = np.maximum(x, z).astype(np.float32)
loss = net(torch.from_numpy(w)).sum()
loss.backward()
opt.step()
"""
    result, _ = run(programs, tmp_path, f"import numpy as np\nimport torch\n{LOOP}{text}")
    assert result.report is not None
    anomaly = result.report["anomalies"][0]
    assert anomaly["mechanism"] == "nonfinite_data"
    assert "torch.from_numpy" in anomaly["location"]["source"]


def test_neither_torch_nor_numpy_is_imported_for_it(tmp_path: Path) -> None:
    bare = tmp_path / "bare.py"
    bare.write_text("import sys\nprint('numpy' in sys.modules, 'torch' in sys.modules)\n")
    only = tmp_path / "only.py"
    only.write_text(
        "import sys\nimport numpy as np\nr = 1 / np.zeros(2)\nprint(r, 'torch' in sys.modules)\n"
    )
    for script, expected, code in ((bare, "False False\n", 0), (only, "[inf inf] False\n", 3)):
        command = [sys.executable, "-m", "whynan", "run", str(script)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert (done.stdout, done.returncode) == (expected, code), done.stderr

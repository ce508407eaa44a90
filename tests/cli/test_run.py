"""`whynan run` is `python`: same world for the script, honest exit codes, nothing lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests.harness import ROOT, ForkServer, words_of_whynan

HEALTHY_TRAINING = """
import torch
w = torch.ones(2, requires_grad=True)
optimizer = torch.optim.SGD([w], lr=0.1)
for step in range(6):
    loss = (w ** 2).sum()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    print("step", step)
"""
FAILING = """
import torch
print("before")
x = torch.zeros(3)
y = torch.log(x)
print(y.sum().item())
print("after")
"""


def write(folder: Path, text: str, name: str = "script.py") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return path


def whynan(
    *args: str, cwd: Path, stdin: str | None = None, **env: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "whynan", *args],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **env},
    )


def python(*args: str, cwd: Path, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *args], cwd=cwd, input=stdin, capture_output=True, text=True, timeout=120
    )


def test_script_sees_the_same_world(tmp_path: Path) -> None:
    script = write(
        tmp_path / "src",
        """
        import sys, os, pickle, argparse, __main__, helper
        class Config:
            pass
        parser = argparse.ArgumentParser()
        parser.add_argument("--lr", type=float)
        parser.add_argument("files", nargs="*")
        print(parser.parse_args())
        print(sys.argv, os.path.basename(sys.path[0]), os.getcwd(), __name__, __file__)
        print(type(pickle.loads(pickle.dumps(Config()))) is Config, __main__.Config is Config)
        print("you said", input("name? "))
        print(helper.__name__, __package__, __spec__, __builtins__.len, __cached__)
        print(type(__loader__), sorted(globals()))
        """,
    )
    write(tmp_path / "src", "print('helper imported')", "helper.py")
    args = (str(script.relative_to(tmp_path)), "--lr", "0.1", "a.txt", "--", "-b")
    plain = python(*args, cwd=tmp_path, stdin="Ada\n")
    watched = whynan("run", *args, cwd=tmp_path, stdin="Ada\n")
    assert plain.returncode == 0, plain.stderr
    assert (watched.stdout, watched.returncode) == (plain.stdout, 0)
    assert watched.stderr == plain.stderr


def test_a_pool_that_nobody_shuts_down_ends_with_the_program(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        """
        import time
        from concurrent.futures import ThreadPoolExecutor
        pool = ThreadPoolExecutor(2)
        def later():
            time.sleep(0.3)
            print("the last task")
        print(list(pool.map(str, range(3))))
        pool.submit(later)
        print("main is over")
        """,
    )
    plain, watched = python(str(script), cwd=tmp_path), whynan("run", str(script), cwd=tmp_path)
    assert (watched.stdout, watched.returncode) == (plain.stdout, 0)


def test_module_with_relative_imports(tmp_path: Path) -> None:
    write(tmp_path, "", "pack/__init__.py")
    write(tmp_path, "VALUE = 7", "pack/numbers.py")
    write(
        tmp_path,
        """
        import sys
        from .numbers import VALUE
        print(__name__, __package__, __spec__.name, VALUE, sys.argv[1:])
        """,
        "pack/train.py",
    )
    plain = python("-m", "pack.train", "--fast", "x", cwd=tmp_path)
    watched = whynan("run", "-m", "pack.train", "--fast", "x", cwd=tmp_path)
    assert "pack.train 7 ['--fast', 'x']" in plain.stdout
    assert (watched.stdout, watched.returncode) == (plain.stdout, 0)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("import sys; sys.exit(5)", 5),
        ("import sys; sys.exit('out of coffee')", 1),
        ("raise ValueError('mine')", 1),
        ("import os; print('bye', flush=True); os._exit(7)", 7),
        ("def f(:\n    pass", 1),
        ("try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise KeyError('k') from e", 1),
    ],
)
def test_exit_code_and_traceback_are_the_scripts_own(tmp_path: Path, body: str, code: int) -> None:
    script = write(tmp_path, body)
    plain = python(str(script), cwd=tmp_path)
    watched = whynan("run", str(script), cwd=tmp_path)
    assert plain.returncode == code
    assert (watched.returncode, watched.stdout) == (plain.returncode, plain.stdout)
    assert watched.stderr == plain.stderr


def test_a_script_without_torch_never_imports_it(tmp_path: Path) -> None:
    script = write(tmp_path, "import sys; print('torch' in sys.modules)")
    watched = whynan("run", "--json", "r.json", str(script), cwd=tmp_path)
    assert (watched.stdout, watched.stderr, watched.returncode) == ("False\n", "", 0)
    assert json.loads((tmp_path / "r.json").read_text())["outcome"] == "clean"


def test_missing_script_and_wrong_usage_exit_with_2(tmp_path: Path) -> None:
    for args in (
        ["run", "nowhere.py"],
        ["run"],
        ["run", "-m", "no.such.module"],
        ["explain", "N999"],
    ):
        done = whynan(*args, cwd=tmp_path)
        assert done.returncode == 2, done
        assert done.stderr.strip()
        assert "Traceback" not in done.stderr
    script = write(tmp_path, "print('ran')")
    done = whynan("run", "--json", "no/such/folder/r.json", str(script), cwd=tmp_path)
    assert done.returncode == 2
    assert "ran" not in done.stdout
    assert "does not exist" in done.stderr


def test_a_last_word_is_told_at_the_end_and_exits_with_3(
    tmp_path: Path, programs: ForkServer
) -> None:
    result = programs.run(write(tmp_path, FAILING))
    assert result.code == 3
    assert result.stdout == "before\n-inf\nafter\n"
    assert "script.py:5:5" in result.stderr
    assert "torch.log(x)" in result.stderr


def test_warn_lets_the_script_go_on_and_still_exits_with_3(
    tmp_path: Path, programs: ForkServer
) -> None:
    result = programs.run(write(tmp_path, FAILING), on_anomaly="warn")
    assert result.code == 3
    assert result.stdout == "before\n-inf\nafter\n"
    assert result.stderr.count("error[") == 1


def test_bare_except_does_not_hide_the_harm(tmp_path: Path, programs: ForkServer) -> None:
    script = write(
        tmp_path,
        """
        import torch
        weight = torch.nn.Parameter(torch.zeros(2))
        optimizer = torch.optim.SGD([weight], 0.1)
        try:
            weight.sqrt().sum().backward()
            optimizer.step()
        except Exception:
            print("swallowed")
        """,
    )
    result = programs.run(script)
    assert (result.code, result.stdout) == (3, "")


def test_installed_behind_a_symbolic_link(tmp_path: Path) -> None:
    (tmp_path / "linked").symlink_to(Path(__file__).parents[2] / "src")
    text = """
    import torch
    x = torch.linspace(300, 2000, 8).reshape(8, 1)
    net = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(net.parameters(), 1e-3)
    scaler = torch.amp.GradScaler("cpu")
    for step in range(12):
        with torch.autocast("cpu", dtype=torch.float16):
            loss = (net(x) * x.half()).square().mean()  # HERE
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        print(loss.item())
    """
    write(tmp_path, text)
    result = whynan("run", "script.py", cwd=tmp_path, PYTHONPATH=str(tmp_path / "linked"))
    assert "GradScaler skipped 9 steps in a row" in result.stderr
    assert "watching" not in result.stderr


def test_a_long_program_without_training_is_not_recorded_for_ever(
    tmp_path: Path, programs: ForkServer
) -> None:
    script = write(
        tmp_path,
        """
        import sys
        import torch
        x = torch.zeros(4)
        for _ in range(11_000):
            x = x * 0.5 + 1
        print(torch._C._len_torch_dispatch_stack(), sys.getprofile())
        print(torch.log(x - 100).sum().item())
        """,
    )
    result = programs.run(script, mode="auto")
    assert result.stdout.splitlines() == ["0 None", "nan"]
    assert result.report is not None
    (found,) = result.report["anomalies"]
    assert (found["location"]["line"], found["mechanism"]) == (8, "log_nonpositive")
    assert (result.code, result.report["reproduced"]) == (3, "body")


def test_max_steps(tmp_path: Path, programs: ForkServer) -> None:
    result = programs.run(write(tmp_path, HEALTHY_TRAINING), max_steps=3)
    assert result.code == 0
    assert result.report is not None
    assert (result.report["steps"], result.report["outcome"]) == (3, "clean")
    assert result.stdout.splitlines() == ["step 0", "step 1"]
    assert "no harm in 3 steps" in result.stderr


def test_json_follows_the_contract(tmp_path: Path, programs: ForkServer) -> None:
    script = write(
        tmp_path, HEALTHY_TRAINING.replace("(w ** 2).sum()", "(w - w).sqrt().sum() + step")
    )
    report = programs.run(script).report
    assert report is not None
    assert report["schema"] == "whynan.report/1"
    assert set(report["versions"]) == {"whynan", "torch", "python"}
    first = report["anomalies"][0]
    assert (first["phase"], first["step"], first["sink"], first["mechanism"]) == (
        "backward", 0, "gradient", "gradient_singularity",
    )  # fmt: skip
    location = first["location"]
    assert (location["file"], location["line"]) == ("script.py", 6)
    line = script.read_text().splitlines()[5]
    assert line[location["column"] : location["end_column"]] == "(w - w).sqrt()"
    assert first["value"] in ("nan", "inf", "-inf")
    assert {f["verdict"] for f in first["fixes"]} == {"not_tried"}
    assert all(set(link) >= {"location", "op", "value", "note"} for link in first["chain"])
    assert (
        "NaN" not in json.dumps(report, allow_nan=False).replace('NaN"', "").split('"headline"')[0]
    )
    assert report["outcome"] == "anomaly"
    assert report["reproduced"] == "live"


def test_crash_is_reported_as_crash(tmp_path: Path, programs: ForkServer) -> None:
    result = programs.run(
        write(tmp_path, "import torch\ntorch.ones(2)\nraise OSError('disk on fire')")
    )
    assert result.code == 1
    assert result.report is not None
    assert (result.report["outcome"], result.report["anomalies"]) == ("crashed", [])
    assert "disk on fire" in result.stderr


def test_report_survives_os_exit(tmp_path: Path, programs: ForkServer) -> None:
    script = write(tmp_path, FAILING + "import os\nos._exit(0)\n")
    result = programs.run(script, on_anomaly="warn")
    assert result.code == 3
    assert result.report is not None
    assert len(result.report["anomalies"]) == 1


def test_full_disk_loses_the_file_but_not_the_run(tmp_path: Path) -> None:
    script = write(tmp_path, "print('ran')")
    folder = tmp_path / "closed"
    folder.mkdir()
    target = folder / "r.json"
    target.mkdir()  # a folder in the way: the report cannot be put there
    done = whynan("run", "--json", str(target), str(script), cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout == "ran\n"
    assert "could not write" in done.stderr


def test_interrupt_leaves_the_report_and_dies_of_the_signal(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        """
        import torch, time
        print("ready", flush=True)
        while True:
            time.sleep(0.01)
            torch.ones(2).sum()
        """,
    )
    command = [sys.executable, "-m", "whynan", "run", "--json", "r.json", str(script)]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert words_of_whynan(errors) == []
    assert str(ROOT) not in errors
    assert json.loads((tmp_path / "r.json").read_text())["outcome"] == "clean"


def test_exceptions_about_nonfinite_values_are_explained(
    tmp_path: Path, programs: ForkServer
) -> None:
    script = write(
        tmp_path,
        """
        import torch
        def sample(logits):
            weights = logits.exp()
            return torch.multinomial(weights / weights.sum(), 1)
        logits = torch.tensor([1.0, 200.0])
        sample(logits)
        """,
    )
    result = programs.run(script)
    assert result.code == 3
    assert "RuntimeError: probability tensor contains either" in result.stderr
    assert result.report is not None
    first = result.report["anomalies"][0]
    assert (first["location"]["line"], first["mechanism"], first["sink"]) == (
        4,
        "overflow",
        "exception",
    )


def test_the_report_says_when_tracing_changed_the_conditions(
    tmp_path: Path, programs: ForkServer
) -> None:
    script = write(
        tmp_path,
        """
        import torch
        @torch.compile(backend="eager")
        def ratio(x):
            return x / (x - x)
        print(ratio(torch.zeros(2)).tolist())
        """,
    )
    result = programs.run(script)
    assert result.report is not None
    assert result.report["anomalies"][0]["location"]["line"] == 5
    assert result.report["anomalies"][0]["mechanism"] == "division_by_zero"
    assert "executed it eagerly" in result.stderr


def test_what_only_eager_mode_has_is_told_as_that(programs: ForkServer, tmp_path: Path) -> None:
    script = write(
        tmp_path,
        """
        import torch

        def wide(graph, inputs):
            return lambda *xs: tuple(f.float() for f in graph(*(x.double() for x in xs)))

        @torch.compile(backend=wide)
        def same(x):
            return torch.log(torch.exp(x))

        weight = torch.nn.Parameter(torch.full((4,), 60.0))
        optimizer = torch.optim.SGD([weight], lr=0.0)
        for step in range(3):
            same(weight * (1 + step)).sum().backward()
            optimizer.step()
        """,
    )
    assert programs.run(script, mode="auto").code == 0
    result = programs.run(script, mode="trace")
    assert result.report is not None
    found = result.report["anomalies"][0]
    assert found["headline"].startswith("only in eager mode: ")
    assert (found["as_compiled"], found["location"]["line"]) == ("finite", 9)
    unknown = programs.run(script, mode="trace", rerun=False).report
    assert unknown is not None
    assert "whether it happens compiled, too" in unknown["anomalies"][0]["unknown"][0]


def test_no_color_and_pipes_get_plain_text(tmp_path: Path) -> None:
    done = whynan("run", str(write(tmp_path, FAILING)), cwd=tmp_path, FORCE_COLOR="", NO_COLOR="1")
    assert "\x1b[" not in done.stderr
    assert done.returncode == 3


def test_explain_and_help_teach(tmp_path: Path) -> None:
    listed = whynan("explain", "--list", cwd=tmp_path).stdout
    assert len(listed.split("\n\n")[0].splitlines()) == 20
    page = whynan("explain", "log_nonpositive", cwd=tmp_path).stdout
    assert page.startswith("N012 log-of-nonpositive")
    assert "Use instead" in page
    assert "whynan run train.py" in whynan("run", "--help", cwd=tmp_path).stdout


def test_options_may_come_from_the_environment(tmp_path: Path) -> None:
    script = write(tmp_path, FAILING)
    done = whynan("run", script.name, cwd=tmp_path, WHYNAN_MODE="trace", WHYNAN_JSON="job.json")
    assert done.returncode == 3
    assert json.loads((tmp_path / "job.json").read_text())["mode"] == "trace"


# Item 33 of the dataset is the only one whose features are all 0: its norm has no direction.
BATCHES = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
x = torch.randn(64, 3) + 3
x[33] = 0.0
net = nn.Linear(3, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for xb, in DataLoader(TensorDataset(x), batch_size=8, {order}):
    out = net(xb) / xb.norm(dim=1, keepdim=True)
    loss = (out - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("mode", ["auto", "trace", "guard"])
def test_the_failing_batch_is_kept_in_every_mode(
    mode: str, tmp_path: Path, programs: ForkServer
) -> None:
    import torch

    path = tmp_path / "batch.pt"
    script = write(tmp_path, BATCHES.format(order="shuffle=True"))
    assert programs.run(script, mode=mode, save_batch=str(path)).code == 3
    batch = torch.load(path)
    inputs = batch["inputs"][0]
    assert inputs.shape == (8, 3)
    (row,) = (inputs == 0).all(dim=1).nonzero().reshape(-1).tolist()
    assert batch["dataset_indices"][row] == 33
    if mode != "guard":  # which sees that the step is bad, not where it began
        assert batch["sample"] == row


WRITES = '    open("progress", "w").close()\n    out ='  # that is not done twice in place


@pytest.mark.parametrize("second", [False, True])
def test_the_failing_batch_of_no_loader_is_kept(second: bool, tmp_path: Path) -> None:
    """The statements of its turn are executed again, or else the script."""
    import torch

    text = BATCHES.replace("x[33]", "x[153]").replace("(64,", "(192,")
    text = text.replace("xb, in DataLoader(TensorDataset(x), batch_size=8, {order})", "xb in x.split(8)")  # fmt: skip
    write(tmp_path, text.replace("    out =", WRITES) if second else text)
    done = whynan("run", "--save-batch", "batch.pt", "script.py", cwd=tmp_path)
    assert done.returncode == 3
    assert ("running the script again" in done.stderr) == second
    assert "whynan: the failing batch is in batch.pt" in done.stderr
    batch = torch.load(tmp_path / "batch.pt")
    assert batch["sample"] == 153 % 8
    assert not batch["inputs"][0][153 % 8].any()
    assert batch["dataset_indices"] is None


def test_no_batch_is_claimed_where_none_is_known(tmp_path: Path) -> None:
    write(tmp_path, FAILING)
    done = whynan("run", "--save-batch", "batch.pt", "script.py", cwd=tmp_path)
    assert "no batch was written" in done.stderr
    assert not (tmp_path / "batch.pt").exists()
    refused = whynan("run", "--save-batch", "nowhere/batch.pt", "script.py", cwd=tmp_path)
    assert refused.returncode == 2
    assert "--save-batch nowhere/batch.pt: the folder" in refused.stderr

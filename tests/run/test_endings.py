"""However a program is started and ends, what was found in it is told."""

from __future__ import annotations

import json
import os
import py_compile
import subprocess
import zipapp
from pathlib import Path

import pytest

from tests.run.starting import run as start
from tests.run.starting import write

TRAIN = """
import torch
def train(bad=None, steps=12):
    torch.manual_seed(0)
    net = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for step in range(steps):
        x = torch.log((torch.rand(5, 4) + 0.5) * (step != bad))
        loss = net(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return net
"""


def run(folder: Path, *command: str | Path) -> subprocess.CompletedProcess[str]:
    write(folder, TRAIN, "training.py")
    return start(*map(str, command), cwd=folder)


@pytest.mark.parametrize("step", [3, 8])
def test_a_program_that_leaves_by_os_exit_is_told_of(tmp_path: Path, step: int) -> None:
    text = f"import os, training\ntry:\n    training.train({step})\nfinally:\n    os._exit(0)\n"
    done = run(tmp_path, "--json", "report.json", write(tmp_path, text))
    assert done.returncode == 3
    assert "because `log` was given" in done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["outcome"], report["anomalies"][0]["step"]) == ("anomaly", step)


def test_the_last_word_before_os_exit_is_one(tmp_path: Path) -> None:
    text = "import os, torch\nprint(torch.zeros(3).log().sum(), flush=True)\nos._exit(0)\n"
    done = run(tmp_path, write(tmp_path, text))
    assert (done.returncode, done.stdout) == (3, "tensor(-inf)\n")
    assert "because `log` was given" in done.stderr


@pytest.mark.parametrize("code", [0, 5])
def test_a_healthy_program_keeps_the_code_that_it_leaves_with(tmp_path: Path, code: int) -> None:
    text = f"import os, training\ntraining.train()\nos._exit({code})\n"
    done = run(tmp_path, write(tmp_path, text))
    assert (done.returncode, done.stderr) == (code, "")


@pytest.mark.parametrize("name", ["os.getpid", "builtins.sorted"])
def test_a_function_that_the_program_replaced_does_not_end_it(tmp_path: Path, name: str) -> None:
    text = f"""
import builtins, os, torch, torch._dynamo, training
def refuses(*args, **kwargs): raise RuntimeError("no")
training.train()
{name} = refuses
print("done")
"""
    done = run(tmp_path, write(tmp_path, text))
    assert (done.returncode, done.stdout) == (0, "done\n")


def test_a_watch_that_stepped_aside_is_no_proof_of_health(tmp_path: Path) -> None:
    text = """
import torch, torch._dynamo, training
def refuses(*args, **kwargs): raise RuntimeError("no")
torch.isfinite = torch.isnan = torch.isinf = refuses
training.train(8)
print("done")
"""
    done = run(tmp_path, write(tmp_path, text))
    assert (done.returncode, done.stdout) == (2, "done\n")
    assert "not watched to the end" in done.stderr


def test_a_link_to_a_script_finds_what_stands_beside_its_target(tmp_path: Path) -> None:
    folder = tmp_path / "real"
    folder.mkdir()
    (folder / "beside.py").write_text("NAME = 'found'\n")
    (folder / "script.py").write_text("import beside\nprint(beside.NAME)\n")
    (tmp_path / "link.py").symlink_to(folder / "script.py")
    assert run(tmp_path, "link.py").stdout == "found\n"


def test_paths_are_meant_where_the_command_is_given(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    text = "import os, training\nos.chdir('elsewhere')\ntraining.train(3)\n"
    run(tmp_path, "--json", "report.json", write(tmp_path, text))
    assert (tmp_path / "report.json").exists()
    assert os.listdir(tmp_path / "elsewhere") == []


def test_a_packed_and_a_compiled_program_are_watched(tmp_path: Path) -> None:
    packed = tmp_path / "packed"
    packed.mkdir()
    (packed / "training.py").write_text(TRAIN)
    (packed / "__main__.py").write_text("import training\ntraining.train(3)\n")
    zipapp.create_archive(packed, tmp_path / "program.pyz")
    script = write(tmp_path, "import training\ntraining.train(3)\n")
    py_compile.compile(str(script), cfile=str(tmp_path / "program.pyc"))
    for program in ("program.pyz", "program.pyc"):
        done = run(tmp_path, program)
        assert done.returncode == 3, done.stderr
        assert "because `log` was given" in done.stderr


def test_steps_that_were_harmful_later_are_counted_once(tmp_path: Path) -> None:
    text = "import training\ntraining.train(3)\n"
    done = run(tmp_path, "--on-anomaly", "warn", write(tmp_path, text))
    assert "8 more steps were harmful" in done.stderr


@pytest.mark.parametrize("waits", ["done.wait()", "results.get()", "time.sleep(0)"])
def test_a_program_that_waits_for_a_thread_which_harm_has_ended(waits: str, tmp_path: Path) -> None:
    work = "training.train(8); done.set(); results.put(1)"
    write(
        tmp_path,
        "import queue, threading, time, training\ndone, results = threading.Event(), queue.Queue()\n"
        f"def work(): {work}\n"
        f"threading.Thread(target=work, daemon=True).start()\n{waits}\n"
        "while not done.is_set(): done.wait(0.5)\n",
    )
    ended = run(tmp_path, "--json", "report.json", "script.py")
    report = json.loads((tmp_path / "report.json").read_text())
    assert ended.returncode == 3, ended.stderr
    assert "Traceback" not in ended.stderr
    assert report["anomalies"][0]["location"]["line"] == 8

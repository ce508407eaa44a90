"""Standard output and standard error that are full, closed or gone: exit codes and reports stand."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

TRAIN = """
import torch
torch.manual_seed(0)
rows = torch.rand(72, 6) + 0.1
rows[57] = BAD
model = torch.nn.Linear(6, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for (x,) in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows), batch_size=8):
    loss = model(x / x.norm(dim=1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("trained")
"""
FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")
STREAMS = [
    pytest.param("full", "pipe", marks=needs_full, id="error full"),
    pytest.param("closed", "pipe", id="error closed"),
    pytest.param("pipe", "full", marks=needs_full, id="output full"),
    pytest.param("pipe", "closed", id="output closed"),
    pytest.param("pipe", "deserted", id="output deserted"),
    pytest.param("deserted", "deserted", id="both deserted"),
    pytest.param("closed", "closed", id="both closed"),
]


def run(
    *command: str, cwd: Path, err: str = "pipe", out: str = "pipe"
) -> subprocess.CompletedProcess[str]:
    with ExitStack() as stack:

        def stream(kind: str) -> Any:
            if kind == "full":
                return stack.enter_context(FULL.open("w"))
            if kind == "deserted":
                reading, writing = os.pipe()
                os.close(reading)
                return stack.enter_context(open(writing, "w"))
            return subprocess.PIPE

        def close() -> None:
            for number, kind in ((1, out), (2, err)):
                if kind == "closed":
                    os.close(number)

        # Under pytest nothing is buffered; in a user's shell standard output is.
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
        return subprocess.run(
            [sys.executable, *command],
            cwd=cwd,
            stdout=stream(out),
            stderr=stream(err),
            text=True,
            timeout=120,
            env={**environment, "OMP_NUM_THREADS": "1"},
            preexec_fn=close,
        )


def script(folder: Path, bad: str) -> str:
    (folder / "train.py").write_text(TRAIN.replace("BAD", bad))
    return "train.py"


@pytest.mark.parametrize(("err", "out"), STREAMS)
def test_harm_ends_with_3_and_is_written_where_it_can_be(
    err: str, out: str, tmp_path: Path
) -> None:
    name = script(tmp_path, "0")
    result = run(
        "-m", "whynan", "run", "--json", "report.json", name, cwd=tmp_path, err=err, out=out
    )  # fmt: skip
    assert result.returncode == 3, result.stderr
    found = json.loads((tmp_path / "report.json").read_text())
    assert found["anomalies"][0]["mechanism"] == "division_by_zero"
    unheard = [note for note in found["notes"] if "standard error could not be written" in note]
    if err == "pipe":
        assert "error[N010]" in result.stderr
        assert result.stderr.count("error[") == 1
        assert "stepped aside" not in result.stderr
        assert not unheard
    else:
        assert unheard
    assert "error[" not in (result.stdout or "")


BROKEN_ERROR = [p for p in STREAMS if p.values[0] != "pipe"]


@pytest.mark.parametrize(("err", "out"), BROKEN_ERROR)
def test_a_healthy_run_is_not_hurt_by_what_nobody_can_hear(
    err: str, out: str, tmp_path: Path
) -> None:
    name = script(tmp_path, "1")
    # At the end it says that there was no harm in so many steps.
    speaking = ("-m", "whynan", "run", "--max-steps", "9", "--json", "report.json", name)
    result = run(*speaking, cwd=tmp_path, err=err, out=out)
    assert result.returncode == 0
    assert not result.stdout
    found = json.loads((tmp_path / "report.json").read_text())
    assert (found["outcome"], found["steps"]) == ("clean", 9)


@pytest.mark.parametrize("last", ["", "raise RuntimeError('disk on fire')", "sys.exit('enough')"])
@pytest.mark.parametrize(("err", "out"), STREAMS)
def test_a_program_ends_as_it_does_without_whynan(
    err: str, out: str, last: str, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(f"import sys\nprint('before')\n{last}\n")
    plain = run("program.py", cwd=tmp_path, err=err, out=out)
    watched = run("-m", "whynan", "run", "program.py", cwd=tmp_path, err=err, out=out)
    assert (watched.returncode, watched.stdout) == (plain.returncode, plain.stdout)
    assert watched.stderr == plain.stderr


ODD = {
    "none": "sys.stderr = None",
    "no stream at all": "sys.stderr = object()",
    "closed": "sys.stderr.close()",
    "a hook that fails": "sys.excepthook = lambda *about: 1 / 0",
    "a hook that is none": "sys.excepthook = None",
    "a hook that ends it": "sys.excepthook = lambda *about: sys.exit(7)",
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_a_crash_looks_as_it_does_without_whynan(odd: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(f"import sys\n{odd}\nprint('x')\n{{}}['key']\n")
    plain = run("program.py", cwd=tmp_path)
    watched = run("-m", "whynan", "run", "program.py", cwd=tmp_path)
    assert (watched.returncode, watched.stdout) == (plain.returncode, plain.stdout)
    assert without_addresses(watched.stderr) == without_addresses(plain.stderr)


def without_addresses(text: str) -> str:
    """Of an error that it cannot show, Python shows where it lies."""
    return re.sub(r"(address|refcount|type) +: .*", "", text)

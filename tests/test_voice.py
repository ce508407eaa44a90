"""whynan can be heard whatever the program does to standard error, and never disturbs by trying."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from whynan import voice


class Raising:
    """A logger's stream whose device is gone."""

    def write(self, text: str) -> int:
        raise OSError(5, "Input/output error")

    def flush(self) -> None:
        pass


def closed() -> io.TextIOWrapper:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    stream.close()
    return stream


BROKEN: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "raising": Raising,
    "closed": closed,
    "no stream at all": object,
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_a_broken_stream_is_replaced_by_the_standard_error_of_the_process(
    broken: Callable[[], Any], tmp_path: Path
) -> None:
    done = python(
        "import sys, io; from tests.test_voice import BROKEN; from whynan import voice\n"
        f"sys.stderr = BROKEN[{next(k for k, v in BROKEN.items() if v is broken)!r}]()\n"
        "print(voice.say('the loss is NaN'), voice.is_on_terminal())"
    )
    assert done.stderr == "whynan: the loss is NaN\n"
    assert done.stdout == "True False\n"


def test_the_programs_own_stream_comes_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert voice.say("heard")
    assert capsys.readouterr().err == "whynan: heard\n"


def test_a_stream_of_few_letters_gets_all_words(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ascii(io.TextIOWrapper):
        """Not the interpreter's own kind: it is written to as any stream is."""

    for kind in (io.TextIOWrapper, Ascii):
        written = io.BytesIO()
        monkeypatch.setattr(sys, "stderr", kind(written, encoding="ascii"))
        assert voice.write("größe = 损失 \udcff\n")
        assert written.getvalue() == rb"gr\xf6\xdfe = \u635f\u5931 \udcff" + b"\n"


def test_a_report_comes_after_what_the_program_has_printed() -> None:
    done = python(
        "import sys; from whynan import voice\n"
        "sys.stdout.write('step 1\\n'); voice.report('error[N010]\\n')",
        stderr=subprocess.STDOUT,
        unbuffered=False,
    )
    assert done.stdout == "step 1\nerror[N010]\n"


@pytest.mark.parametrize("output", ["sys.stdout = None", "sys.stdout.close()", "os.close(1)"])
def test_a_broken_standard_output_loses_no_report(output: str) -> None:
    done = python(
        "import os, sys; from whynan import voice\nsys.stdout.write('x')\n"
        f"{output}\nsys.exit(0 if voice.report('told') else 5)",
        unbuffered=False,
    )
    assert done.stderr.startswith("told")


def test_what_nobody_can_hear_is_remembered() -> None:
    done = python(
        "import sys; from whynan import voice\n"
        "assert voice.unsaid() is None\n"
        "print(voice.say('the loss is NaN'), voice.unsaid())",
        close=2,
    )
    assert done.returncode == 0
    said, why = done.stdout.split(" ", 1)
    assert said == "False"
    assert "standard error" in why


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_leaves_nothing_for_python_to_stumble_over() -> None:
    with open("/dev/full", "w") as full:
        done = python("from whynan import voice; print(voice.say('x' * 9))", stderr=full)
    assert (done.stdout, done.returncode) == ("False\n", 0)  # with bytes left over: 120


def test_a_file_that_got_the_number_of_a_closed_standard_error_is_not_written_to(
    tmp_path: Path,
) -> None:
    """It may be a checkpoint."""
    path = tmp_path / "checkpoint"
    program = (
        "import os, sys; from whynan import voice\n{before}"
        f"file = os.open({str(path)!r}, os.O_WRONLY | os.O_CREAT)\n"
        "print(file, voice.say('the loss is NaN'))"
    )
    assert python(program.format(before=""), close=2).stdout == "2 False\n"
    before = "sys.stderr = None; os.close(2)\n"
    assert python(program.format(before=before)).stdout == "2 False\n"
    assert path.read_bytes() == b""


def test_a_pipe_that_does_not_wait_gets_the_whole_report() -> None:
    """A program that shares its terminal with another one may find it so."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    process = subprocess.Popen(
        [sys.executable, "-c", "from whynan import voice; voice.write('x' * 300_000)"],
        stderr=writing,
        cwd=Path(__file__).parent.parent,
    )
    os.close(writing)
    with open(reading, "rb") as stream:
        assert len(stream.read()) == 300_000
    assert process.wait() == 0


def python(
    program: str,
    *,
    close: int | None = None,
    stderr: Any = subprocess.PIPE,
    unbuffered: bool = True,
) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    return subprocess.run(
        [sys.executable, *["-u"] * unbuffered, "-c", program],
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        timeout=60,
        cwd=Path(__file__).parent.parent,
        env=environment,
        preexec_fn=None if close is None else lambda: os.close(close),
    )

"""Never silently absent: what was not watched is said, and a torch that cannot be watched is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from tests.run.starting import run, write
from whynan.seam import supported

# Executed by a loader of the program's own, and nothing is imported afterwards.
UNSEEN = """
import os, sys
from importlib.abc import Loader
from importlib.machinery import PathFinder
class Own(Loader):
    def __init__(self, loader):
        self.loader = loader
    def exec_module(self, module):
        exec(self.loader.get_code("torch"), module.__dict__)
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "torch":
            spec = PathFinder.find_spec(name, path)
            spec.loader = Own(spec.loader)
            return spec
sys.meta_path.insert(0, Finder)
import torch
print(torch.ones(3).sum().item(), flush=True)
"""


@pytest.mark.parametrize(
    "end", ["", "sys.exit(5)", "sys.stdout.flush(); os._exit(0)", "raise ValueError('mine')"]
)
def test_torch_that_was_used_unwatched_is_said(end: str, tmp_path: Path) -> None:
    script = write(tmp_path, UNSEEN + end)
    done = run("--json", "report.json", script.name, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "3.0\n")
    said = [line for line in done.stderr.splitlines() if line.startswith("whynan: ")]
    assert len(said) == 1
    assert "torch was used, but not watched" in said[0]
    assert ("ValueError: mine" in done.stderr) == ("mine" in end)
    assert not (tmp_path / "report.json").exists()  # it could only say that all is well


def test_a_watch_that_cannot_start_is_no_success(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        "import sys\nsys.modules['whynan.watching.guard'] = None  # cannot be imported\n"
        "import torch\nprint(torch.ones(3).sum().item())\n",
    )
    done = run(script.name, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "3.0\n")
    assert "whynan: torch was used, but not watched" in done.stderr


def test_torch_that_breaks_itself_is_said(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        """
        import sys, torch
        kept = sys.modules.pop("torch")
        try:
            import torch
        except RuntimeError:  # torch cannot do it to the end
            sys.modules["torch"] = kept
        print(kept.ones(3).sum().item())
        """,
    )
    done = run(script.name, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "3.0\n")
    assert done.stderr.count("whynan: ") == 1


@pytest.mark.parametrize(
    "body",
    [
        "import importlib.util; assert importlib.util.find_spec('torch')",
        "import sys, types; sys.modules['torch'] = types.ModuleType('torch'); import torch",
        "import sys; from unittest.mock import MagicMock; sys.modules['torch'] = MagicMock(); import torch, json",
        "import sys; sys.modules['torch'] = None",
        "import sys; sys.path.insert(0, 'own'); import torch; assert torch.LIT",
    ],
)
def test_without_torch_there_is_nothing_to_say(body: str, tmp_path: Path) -> None:
    write(tmp_path, "LIT = True", "own/torch.py")
    script = write(tmp_path, f"{body}\nraise SystemExit(4)")
    done = run("--json", "report.json", script.name, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (4, "")
    assert (tmp_path / "report.json").exists()


def fake_torch(folder: Path, text: str) -> str:
    write(folder, text, "fake/torch/__init__.py")
    return str(folder / "fake")


OLD = "torch 2.4.1 cannot be watched: whynan works with 2.6 to 2.15; install a newer one"


@pytest.mark.parametrize(
    "body",
    [
        "import torch",
        "try:\n    import torch\nexcept Exception:\n    print('swallowed')",
        "try:\n    import torch\nexcept:\n    pass\nimport torch",
    ],
)
@pytest.mark.parametrize("mode", ["auto", "trace"])
def test_an_old_torch_is_refused_before_it_is_used(body: str, mode: str, tmp_path: Path) -> None:
    path = fake_torch(tmp_path, "__version__ = '2.4.1'")
    script = write(tmp_path, f"print('begins', flush=True)\n{body}\nprint('uses it')")
    done = run("--json", "report.json", "--mode", mode, script.name, cwd=tmp_path, PYTHONPATH=path)
    assert (done.returncode, done.stdout) == (2, "begins\n")
    assert done.stderr == f"whynan: {OLD}\n"
    assert not (tmp_path / "report.json").exists()


def test_an_old_torch_is_refused_in_a_thread(tmp_path: Path) -> None:
    path = fake_torch(tmp_path, "__version__ = '2.4.1'")
    script = write(
        tmp_path,
        """
        import threading
        def work():
            import torch
            print("uses it")
        thread = threading.Thread(target=work)
        thread.start(); thread.join()
        print("ends")
        """,
    )
    done = run(script.name, cwd=tmp_path, PYTHONPATH=path)
    assert (done.returncode, done.stdout, done.stderr) == (2, "ends\n", f"whynan: {OLD}\n")


@pytest.mark.parametrize("version", ["2.7.0", "2.8.0a0+git1234"])
def test_a_torch_without_a_name_that_is_needed_is_refused(version: str, tmp_path: Path) -> None:
    path = fake_torch(tmp_path, f"__version__ = {version!r}")
    script = write(tmp_path, "import torch\nprint('uses it')")
    done = run(script.name, cwd=tmp_path, PYTHONPATH=path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"whynan: torch {version} cannot be watched: ")
    assert "whynan needs " in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["fix", "whatif"])
def test_other_commands_refuse_it_too(command: str, tmp_path: Path) -> None:
    path = fake_torch(tmp_path, "__version__ = '2.4.1'")
    script = write(tmp_path, "import torch\nprint('uses it')")
    done = run(script.name, cwd=tmp_path, command=command, PYTHONPATH=path)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"whynan: {OLD}\n")


@pytest.mark.parametrize("command", ["fix", "whatif", "doctor"])
def test_other_commands_say_what_to_install(command: str, tmp_path: Path) -> None:
    write(tmp_path, AWAY, "site/sitecustomize.py")
    script = [write(tmp_path, "import torch").name] if command != "doctor" else []
    done = run(*script, cwd=tmp_path, command=command, PYTHONPATH=str(tmp_path / "site"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "whynan: PyTorch is not installed here; install " in done.stderr


def test_a_program_that_does_without_torch_is_none_that_lacks_it(tmp_path: Path) -> None:
    write(tmp_path, AWAY, "site/sitecustomize.py")
    script = write(tmp_path, "try:\n    import torch\nexcept ImportError:\n    print('without')")
    done = run(script.name, cwd=tmp_path, PYTHONPATH=str(tmp_path / "site"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "without\n", "")


@pytest.mark.parametrize("block", ["whynan.watch()", "whynan.trace()"])
def test_blocks_raise_what_is_wrong(block: str, tmp_path: Path) -> None:
    path = fake_torch(tmp_path, "__version__ = '2.4.1'")
    script = write(
        tmp_path,
        f"""
        import whynan
        try:
            with {block}:
                print("uses it")
        except whynan.WhynanError as error:
            print(error)
        """,
    )
    done = run(script.name, cwd=tmp_path, watched=False, PYTHONPATH=path)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{OLD}\n", "")


AWAY = """
import sys
class Away:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
sys.meta_path.insert(0, Away)
"""


def test_where_torch_is_missing_the_traceback_stays_and_a_line_helps(tmp_path: Path) -> None:
    write(tmp_path, AWAY, "site/sitecustomize.py")
    script = write(tmp_path, "import torch")
    plain, watched = (
        run(script.name, cwd=tmp_path, watched=w, PYTHONPATH=str(tmp_path / "site"))
        for w in (False, True)
    )
    *traceback, last = watched.stderr.splitlines()
    assert (watched.returncode, traceback) == (2, plain.stderr.splitlines())
    assert last.startswith("whynan: PyTorch is not installed here; install ")


def test_this_torch_has_all_that_is_needed() -> None:
    assert supported.refusal(torch) is None
    assert supported.loaded_torch() is sys.modules["torch"]

"""Pages are done as a reader would: their files are saved, their commands are typed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.docs.pages import DOCS, ROOT, Command, blocks, commands, is_shown

PAGES = [
    *sorted(p for p in (DOCS / "use").glob("*.md") if p.stem != "notebooks"),
    ROOT / "README.md",
    DOCS / "faq.md",
    DOCS / "for-agents.md",
]
# What a queue does with a job, on one machine.
QUEUE = {
    "sbatch": "exec bash $1",
    "srun": 'exec "$@"',
    "scontrol": "echo localhost",
}
JOB = {"SLURM_JOB_ID": "7", "SLURM_NNODES": "1", "SLURM_JOB_NODELIST": "localhost"}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, text in QUEUE.items():
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)
    # torchrun, tensorboard and pytest, as this interpreter has them
    modules = {
        "python": "",
        "torchrun": "-m torch.distributed.run",
        "tensorboard": "-m tensorboard.main",
        "pytest": "-m pytest",
        "whynan": "-m whynan",
    }
    for name, module in modules.items():
        (tools / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
        (tools / name).chmod(0o755)
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, **JOB, "PATH": path, "COLUMNS": "80", "HF_HUB_OFFLINE": "1"}


def typed(command: Command, folder: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        command.line, shell=True, cwd=folder, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300,
    )  # fmt: skip
    assert done.returncode == command.code, done.stdout
    missing = [line for line in command.shown if not is_shown(line, done.stdout)]
    assert not missing, f"{missing} not in what {command.line!r} says:\n{done.stdout}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_a_page_does_what_it_says(page: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    shutil.copytree(ROOT / "examples", folder / "examples")
    todo = []
    for block in blocks(page):
        if block.title:
            (folder / block.title).write_text(block.text, encoding="utf-8")
        elif block.kind == "console":
            todo += commands(block.text)
    assert todo
    for command in todo:
        typed(command, folder, environment)


def test_the_cells_of_the_notebook_page_give_its_report() -> None:
    page = blocks(DOCS / "use" / "notebooks.md")
    notebook: Any = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(b.text) for b in page if b.title == "cell"]
    NotebookClient(notebook, timeout=120).execute()
    outputs = [o for cell in notebook.cells for o in cell.outputs]
    text = "".join(o.data.get("text/plain", "") for o in outputs if "data" in o)
    shown = [line for b in page if b.kind == "text" for line in b.text.splitlines()]
    assert shown
    assert [line for line in shown if not is_shown(line, text)] == []
    assert text.endswith("True")

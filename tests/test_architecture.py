"""Arrows point one way, torch stays where it belongs, exports match."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import whynan

SOURCE = Path(whynan.__file__).parent
NOUNS = {"model", "recording", "rulebook", "errors", "version", "codec", "files", "voice"}
# Which folders each folder may import, besides the top-level nouns and itself.
ARROWS: dict[str, set[str]] = {
    "ops": set(),
    "source": {"ops"},
    "seam": {"source"},
    "record": {"source", "ops", "seam"},
    "harm": set(),
    "watching": {"source", "seam", "harm", "record"},
    "ranks": {"ops", "seam", "harm", "record", "watching"},
    "diagnosis": {"source", "ops"},
    "repair": {"source", "ops", "seam", "run", "explain", "diagnosis", "report"},
    "checking": {"source", "seam"},
    "arrays": {"source", "ops", "seam", "checking", "diagnosis"},
    "stable": {"seam"},
    "lint": {"source", "ops"},
    "explain": {"source", "ops", "diagnosis", "lint"},
    "report": {"source", "explain", "diagnosis", "lint"},
    "cli": {"run", "explain", "repair", "checking", "lint", "report"},
}
TORCH_FOLDERS = {"seam", "watching", "ranks", "record", "repair", "adapters", "stable"}


def imports_of(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_one_way(path: Path) -> None:
    folder = path.relative_to(SOURCE).parts[0]
    if folder not in ARROWS:
        return
    own = {name.split(".")[1] for name in imports_of(path) if name.startswith("whynan.")}
    assert own <= NOUNS | ARROWS[folder] | {folder}


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_torch_is_imported_only_where_it_belongs(path: Path) -> None:
    folder = path.relative_to(SOURCE).parts[0]
    tree = ast.parse(path.read_text())
    top = {a.name.split(".")[0] for n in tree.body if isinstance(n, ast.Import) for a in n.names}
    top |= {(n.module or "").split(".")[0] for n in tree.body if isinstance(n, ast.ImportFrom)}
    assert folder in TORCH_FOLDERS or "torch" not in top


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_every_module_opens_with_one_sentence(path: Path) -> None:
    text = ast.get_docstring(ast.parse(path.read_text()))
    assert text
    assert text.splitlines()[0].rstrip().endswith((".", "?"))


def test_nothing_imports_the_command_line() -> None:
    users = [p for p in modules() if p.parent.name != "cli" and p.name != "__main__.py"]
    assert not [p for p in users if any(n.startswith("whynan.cli") for n in imports_of(p))]


@pytest.mark.parametrize(
    "command",
    [
        "import whynan; whynan.Diagnosis; whynan.diagnose; whynan.check",
        "from whynan.cli import commands; commands(['--help'], standalone_mode=False)",
        "from whynan.cli import commands; commands(['explain', 'N012'], standalone_mode=False)",
        "from whynan.cli import commands; commands(['explain', '--list'], standalone_mode=False)",
        "from whynan.recording import Recording, load; Recording().save('/dev/null')",
        "from whynan.cli import commands; commands(['lint', '--diff', 'examples'], standalone_mode=False)",
    ],
)
def test_torch_stays_unimported(command: str) -> None:
    check = "; import sys; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", command + check], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_all_public_names_exist_and_no_other_is_promised() -> None:
    assert all(getattr(whynan, name) is not None for name in whynan.__all__)
    assert sorted(dir(whynan)) == sorted(whynan.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = whynan.nonsense

"""Arrows point one way, torch stays where it belongs, exports match."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import whynan

SOURCE = Path(whynan.__file__).parent
DOCUMENT = SOURCE.parent.parent / "docs" / "architecture.md"
TORCH_FOLDERS = {"seam", "watching", "ranks", "record", "trying", "repro", "adapters", "stable"}


def imports_of(path: Path) -> set[str]:
    """Every kind: at the top, in functions, for types only, relative, and by name in a string."""
    found = set()
    package = ["whynan", *path.relative_to(SOURCE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            up = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*up, *([node.module] if node.module else [])])
            found |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= set(re.findall(r"^whynan(?:\.\w+)+$", node.value))
    return found


def room_of(name: str) -> str:
    """The folder of a module; of the nouns, `top`."""
    first = name.split(".")[1]
    return first if first != "model" and (SOURCE / first).is_dir() else "top"


def documented_arrows() -> dict[str, set[str]]:
    text = DOCUMENT.read_text().split("## Arrows")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `?(\w+)/?`? \| (.*) \|$", text, re.MULTILINE)
    return {room: set(re.findall(r"`(\w+)`", rest)) for room, rest in rows[1:]}


def arrows() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for path in modules():
        room = room_of(f"whynan.{path.relative_to(SOURCE).parts[0]}")
        own = {room_of(n) for n in imports_of(path) if n.startswith("whynan.")}
        found.setdefault(room, set()).update(own - {room, "top"})
    return found


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def test_the_picture_of_the_house_shows_every_arrow_and_no_other() -> None:
    assert arrows() == documented_arrows()


def test_arrows_between_rooms_point_one_way() -> None:
    left = {room: set(others) for room, others in arrows().items() if room != "top"}
    while left:
        free = [room for room, others in left.items() if not others & left.keys()]
        assert free, f"a circle: {left}"
        for room in free:
            del left[room]


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

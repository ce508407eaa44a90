"""Pages of documentation as something to run: files to copy, commands to type, words that come."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
_block = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One fenced block; `title` is the file that it is to be saved as."""

    kind: str
    title: str
    text: str


@dataclass(frozen=True)
class Command:
    """`$ line  # exit code 3`, and what the page shows of its output."""

    line: str
    code: int
    shown: tuple[str, ...]


def blocks(page: Path) -> list[Block]:
    found = _block.findall(page.read_text(encoding="utf-8"))
    return [Block(kind, title, text) for kind, title, text in found]


def commands(text: str) -> list[Command]:
    """Of a `console` block."""
    found = []
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        line, *shown = part.splitlines()
        line, _, code = line.partition("  # exit code ")
        found.append(Command(line, int(code or 0), tuple(s for s in shown if s.strip())))
    return found


def is_shown(line: str, output: str) -> bool:
    """A line of the page is somewhere in the output; `...` stands for anything."""
    return all(part in output for part in line.strip().split("...") if part)

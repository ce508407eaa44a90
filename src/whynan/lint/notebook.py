"""A notebook's code cells as one program, and back again."""

from __future__ import annotations

import re
from typing import Any

from whynan.source.trees import UNREADABLE, parsed

MAGIC = re.compile(r"^\s*([%!?]|.*\?\s*$)")
CELL_MAGIC = re.compile(r"^\s*%%(?!time|timeit|capture)\w+")


class NotANotebook(ValueError):
    """The file does not hold what its name promises."""


class Notebook:
    """Code cells joined, so that what one cell defines is known in the next."""

    def __init__(self, raw: str) -> None:
        import json  # only notebooks need it, and lint must start quickly

        self.raw = raw
        try:
            self.document: dict[str, Any] = json.loads(raw)
            cells = self.document["cells"]
            self._cells = [(n, c) for n, c in enumerate(cells, 1) if c.get("cell_type") == "code"]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise NotANotebook("not a notebook of format 4") from error
        self.lines: list[str] = []
        self._places: list[tuple[int, int]] = []  # cell number, line in the cell
        for number, cell in self._cells:
            for line, text in enumerate(_source(cell).split("\n"), 1):
                self.lines.append(text)
                self._places.append((number, line))

    @property
    def program(self) -> str:
        """Valid Python with the same lines: what only a notebook understands is blanked."""
        shown = []
        in_magic: int | None = None
        goes_on = False  # `!pip install \` and the line after it are one command
        for text, (cell, line) in zip(self.lines, self._places, strict=True):
            if line == 1:
                in_magic = cell if CELL_MAGIC.match(text) else None
                goes_on = False
            if in_magic == cell:
                shown.append("")
            elif goes_on:
                shown.append("")
                goes_on = text.rstrip().endswith("\\")
            elif MAGIC.match(text) and not text.lstrip().startswith("#"):
                shown.append(text[: len(text) - len(text.lstrip())] + "pass")
                goes_on = text.rstrip().endswith("\\")
            else:
                shown.append(text)
        program = "\n".join(shown)
        return program if _is_python(program) else "\n".join(self._readable(shown))

    def _readable(self, shown: list[str]) -> list[str]:
        """Without the cells that are no Python, such as pasted output: IPython runs the others, too."""
        cells: dict[int, list[str]] = {}
        for text, (cell, _) in zip(shown, self._places, strict=True):
            cells.setdefault(cell, []).append(text)
        kept = {n: lines if _is_python("\n".join(lines)) else [""] * len(lines) for n, lines in cells.items()}  # fmt: skip
        if not any(any(lines) for lines in kept.values()):
            return shown  # none of it can be read, which is worth saying
        return [text for lines in kept.values() for text in lines]

    def place(self, line: int) -> tuple[int, int]:
        """Cell number and line within it, of a line of the program."""
        return self._places[min(line, len(self._places)) - 1]

    def with_lines(self, fixed: list[str]) -> str:
        """The notebook's text with other lines, one for one."""
        import json

        at = 0
        for _, cell in self._cells:
            count = len(_source(cell).split("\n"))
            text = "\n".join(fixed[at : at + count])
            at += count
            cell["source"] = text.splitlines(keepends=True) if isinstance(cell["source"], list) else text  # fmt: skip
        indent = re.match(r"\{\n( +|\t+)", self.raw)
        width: Any = len(indent[1]) if indent and indent[1][0] == " " else "\t" if indent else None
        body = json.dumps(self.document, indent=width, ensure_ascii=self.raw.isascii() and "\\u" in self.raw)  # fmt: skip
        return body + ("\n" if self.raw.endswith("\n") else "")


def _is_python(text: str) -> bool:
    try:
        parsed(text)
    except UNREADABLE:
        return False
    return True


def _source(cell: dict[str, Any]) -> str:
    source = cell.get("source", "")
    return "".join(source) if isinstance(source, list) else str(source)

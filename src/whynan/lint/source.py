"""What a file says about itself before any expression is read: classes, half precision, text."""

from __future__ import annotations

import ast
import bisect
import re

from whynan.lint.skim import Skim
from whynan.source.trees import statements

Position = tuple[int, int]  # line from 1, column in characters from 0

HALF = re.compile(r"\.half\(\)|\btorch\.(?:half|float16)\b|dtype=[\"']float16")
TEST = re.compile(r"[!=]=|\bin\b|\bis\b|^\s*#|^\s*(from|import)\b")


class Source:
    """One parsed file."""

    def __init__(
        self, text: str, tree: ast.Module, path: str = "", skim: Skim | None = None
    ) -> None:
        # The file and its folder say what the code is for; where the project lies does not.
        parts = path.replace("\\", "/").split("/")
        self.path = "/".join(parts[-2:])
        self.is_metric = any(part.endswith("metrics") for part in parts[:-1])
        self.text = text
        self.tree = tree
        # As the parser counts lines: form feeds and the like do not end one.
        self.lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self.classes: list[ast.ClassDef] = []
        self.half_lines: list[int] = []
        self.skim = (skim or Skim(text)).read()
        self._scan()

    def _scan(self) -> None:
        for node in statements(self.tree.body):
            if isinstance(node, ast.ClassDef):
                self.classes.append(node)
        if HALF.search(self.text):
            # `x.dtype == torch.float16` is code that knows about half precision.
            self.half_lines = [n for n, line in enumerate(self.lines, 1) if HALF.search(line) and not TEST.search(line)]  # fmt: skip

    def uses_half(self, first: int, last: int) -> bool:
        """Is float16 asked for by name between two lines?"""
        at = bisect.bisect_left(self.half_lines, first)
        return at < len(self.half_lines) and self.half_lines[at] <= last

    def class_uses_half(self, node: ast.ClassDef) -> bool:
        """What one method converts, another does not see; what `__init__` does, all of them."""
        common = [s for s in node.body if getattr(s, "name", "__init__") == "__init__"]
        return any(self.uses_half(s.lineno, s.end_lineno or s.lineno) for s in common)

    def column(self, line: int, utf8_offset: int) -> int:
        """The parser counts bytes; editors and people count characters."""
        text = self.lines[line - 1]
        return utf8_offset if text.isascii() else len(text.encode()[:utf8_offset].decode("utf-8", "ignore"))  # fmt: skip

    def start(self, node: ast.expr) -> Position:
        return node.lineno, self.column(node.lineno, node.col_offset)

    def end(self, node: ast.expr) -> Position:
        line = node.end_lineno or node.lineno
        return line, self.column(line, node.end_col_offset or 0)

    def segment(self, node: ast.expr) -> str:
        """The expression as typed."""
        (first, left), (last, right) = self.start(node), self.end(node)
        if first == last:
            return self.lines[first - 1][left:right]
        middle = self.lines[first : last - 1]
        return "\n".join([self.lines[first - 1][left:], *middle, self.lines[last - 1][:right]])

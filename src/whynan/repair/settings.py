"""A settings file that is no Python (YAML, JSON, TOML): its numbers by name, each where it is written."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

import libcst as cst
from libcst.metadata import CodePosition, CodeRange

from whynan.repair.source import Expression, Source

ENDINGS = (".yaml", ".yml", ".json", ".toml")
NUMBER = re.compile(
    r"""["']?(?P<name>[A-Za-z_][\w-]*)["']?\s*[:=]\s*
        (?P<value>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(?=\s*(?:[,}\]\#]|$))""",
    re.VERBOSE,
)


class Settings(Source):
    """Its only nodes are numbers: asked for anything else, it has none."""

    def __init__(self, path: str, text: str) -> None:
        self.path, self.text = path, text
        self.module, self.tree = cst.Module([]), ast.Module([], [])
        self._lines = text.split("\n")
        self._named: list[tuple[str, Expression]] = []
        ranges: dict[cst.CSTNode, CodeRange] = {}
        for number, line in enumerate(self._lines, 1):
            for found in NUMBER.finditer(line):
                if "#" in line[: found.start()]:
                    break
                node = cst.parse_expression(found["value"].lstrip("+"))
                start, end = (CodePosition(number, found.span("value")[i]) for i in (0, 1))
                ranges[node] = CodeRange(start, end)
                self._named.append((found["name"].replace("-", "_"), node))
        self._ranges: Mapping[cst.CSTNode, CodeRange] = ranges
        self._parents: Mapping[cst.CSTNode, cst.CSTNode] = {}

    def numbers(self, name: str) -> Iterator[Expression]:
        yield from (node for called, node in self._named if called == name)

    def with_numbers(self, replaced: Mapping[cst.CSTNode, str]) -> str:
        """The text with other numbers at some places."""
        lines = list(self._lines)
        for node, text in sorted(replaced.items(), key=lambda r: self.start(r[0]), reverse=True):
            where = self._ranges[node]
            if "e" in text and "." not in text and self.path.endswith((".yaml", ".yml")):
                text = text.replace("e", ".0e")  # without a point YAML reads a string
            line = lines[where.start.line - 1]
            lines[where.start.line - 1] = line[: where.start.column] + text + line[where.end.column :]  # fmt: skip
        return "\n".join(lines)

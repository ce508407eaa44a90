"""Comments that allow a pattern where the author knows better: `# whynan: allow[log-softmax]`."""

from __future__ import annotations

import ast
import re

ALLOW = re.compile(r"#\s*whynan:\s*allow\[([^\]]*)\]")
FILE = re.compile(r"^\s*#\s*whynan:\s*allow-file\[([^\]]*)\]", re.M)


class Allowances:
    """Which slugs and codes are allowed on which lines."""

    def __init__(self, text: str, lines: list[str]) -> None:
        self._lines: dict[int, set[str]] = {}
        self._file: set[str] = set()
        if "whynan:" not in text:
            return
        for found in FILE.finditer(text):
            self._file |= _words(found[1])
        for number, line in enumerate(lines, 1):
            comment = ALLOW.search(line)
            if comment:
                # A comment on its own line speaks of the statement below it.
                alone = line.lstrip().startswith("#")
                self._lines.setdefault(number + alone, set()).update(_words(comment[1]))

    def covers(self, code: str, slug: str, node: ast.expr) -> bool:
        if not self._lines and not self._file:
            return False
        allowed = set(self._file)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1):
            allowed |= self._lines.get(number, set())
        return bool(allowed & {code.lower(), slug, "all"})


def _words(text: str) -> set[str]:
    return {word.strip().lower() for word in text.split(",") if word.strip()}

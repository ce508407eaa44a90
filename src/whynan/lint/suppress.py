"""Comments that allow a pattern where the author knows better: `# whynan: allow[log-softmax]`, `# noqa: N012`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

ALLOW = re.compile(r"#\s*whynan:\s*allow(?:-file)?\b(?:\[([^\]]*)\])?")
FILE = re.compile(r"^\s*#\s*whynan:\s*allow-file\[([^\]]*)\]", re.M)
# As flake8 and ruff read it: codes, by commas or spaces; without any, everything on the line.
NOQA = re.compile(r"#\s*noqa(?::\s*([\w-]+(?:[,\s]+[\w-]+)*))?", re.I)


class Allowances:
    """Which slugs and codes are allowed on which lines."""

    def __init__(self, text: str, lines: list[str]) -> None:
        self._lines: dict[int, set[str]] = {}
        self._file: set[str] = set()
        self._comments: list[tuple[int, int, str | None]] = []
        is_whynan = "whynan:" in text
        if not is_whynan and "noqa" not in text.lower():
            return
        for found in FILE.finditer(text):
            self._file |= _words(found[1])
        for number, line in enumerate(lines, 1):
            if "#" not in line:
                continue
            comment = ALLOW.search(line) if is_whynan else None
            if comment:
                self._comments.append((number, comment.start(), comment[1]))
                if "allow-file" not in comment[0]:
                    # A comment on its own line speaks of the statement below it.
                    alone = line.lstrip().startswith("#")
                    self._allow(number + alone, _words(comment[1] or ""))
            quiet = NOQA.search(line)
            if quiet:
                self._allow(number, _words(re.sub(r"\s+", ",", quiet[1])) if quiet[1] else {"all"})

    def _allow(self, line: int, words: set[str]) -> None:
        self._lines.setdefault(line, set()).update(words)

    def covers(self, code: str, slug: str, node: ast.expr) -> bool:
        if not self._lines and not self._file:
            return False
        allowed = set(self._file)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1):
            allowed |= self._lines.get(number, set())
        return bool(allowed & {code.lower(), slug, "all"})

    def mistakes(self, known: frozenset[str]) -> Iterator[tuple[int, int, str]]:
        """Comments that allow nothing: line, column, and what is wrong with them."""
        for number, column, given in self._comments:
            words = _words(given or "")
            if not words:
                yield number, column, "`allow` names no pattern, so it allows nothing"
            for word in sorted(words - known - {"all"}):
                yield number, column, f"`{word}` is no pattern or code, so it allows nothing"


def _words(text: str) -> set[str]:
    return {word.strip().lower() for word in text.split(",") if word.strip()}

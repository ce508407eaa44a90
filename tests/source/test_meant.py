"""Whether a file says that what is written somewhere is infinite or NaN."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from whynan.model import Site
from whynan.source.meant import mentions_nonfinite, names_nonfinite

INF = "float('-inf')"


def site(tmp_path: Path, text: str) -> Site:
    """Where the interpreter says the program is: `row[0]`, or the call of `fill_`."""
    file = tmp_path / "program.py"
    file.write_text(text)
    nodes = list(ast.walk(ast.parse(text)))
    calls = [n for n in nodes if isinstance(n, ast.Call) and ast.unparse(n.func).endswith("fill_")]
    stores = [n for n in nodes if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store)]
    stores = [n for n in stores if ast.unparse(n.value) == "row"]
    node: ast.expr = (*calls, *stores)[0]
    line = text.splitlines()[node.lineno - 1]
    return Site(
        file=str(file), line=node.lineno, end_line=node.end_lineno or 0, column=node.col_offset,
        end_column=node.end_col_offset, function="f", source=line.strip(),
        expression=ast.unparse(node),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"row[0] = {INF}", True),
        ("row[0] = 3.0", False),
        (f"low = {INF}\nrow[0] = low", True),
        (f"low = {INF}\nrow[0] = -low if c else 0", True),
        (f"low = {INF}\nhigh = low\nrow[0] = torch.tensor(high)", True),
        (f"low = {INF}\nrow[0] = 2 * low", False),  # computed
        (f"low, high = {INF}, 1.0\nrow[0] = high", False),
        (f"low = 0\nif c:\n    low = {INF}\nrow[0] = low", True),
        (f"low = {INF}\nlow = score(x)\nrow[0] = low", False),
        (f"def f(x):\n    low = score(x)\n    row[0] = low\ndef g():\n    low = {INF}", False),
        (f"def f(low={INF}):\n    row[0] = low", True),
        (f"def f(low):\n    row[0] = low\nf(low={INF})", True),
        (f"class A:\n    low = {INF}\n    def f(self):\n        row[0] = self.low", True),
        (f"class A:\n    def g(self, a={INF}):\n        self.low = a\n    def f(self):\n        row[0] = self.low", True),
        (f"SET = {{'low': {INF}}}\nrow[0] = SET['low']", True),
        (f"SET['low'] = {INF}\nrow[0] = SET['low']", True),
        ("row[0] = low", False),
    ],
)  # fmt: skip
def test_what_is_assigned(text: str, expected: bool, tmp_path: Path) -> None:
    assert names_nonfinite(site(tmp_path, text)) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"x.masked_fill_(mask, {INF})", True),
        (f"low = {INF}\nx.masked_fill_(mask, low)", True),
        (f"low = {INF}\nx.masked_fill_(mask, 0.0)", False),
        (f"low = score()\nx.masked_fill_(mask, low)\ndef g():\n    low = {INF}", False),
        (f"class A:\n    low = {INF}\n    def f(self):\n        x.masked_fill_(m, self.low)", True),
        ("x.nan_to_num().fill_(0.0)", False),
    ],
)
def test_what_is_mentioned(text: str, expected: bool, tmp_path: Path) -> None:
    assert mentions_nonfinite(site(tmp_path, text)) is expected

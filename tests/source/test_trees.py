"""Each text is parsed once, quietly, and places are found in it."""

from __future__ import annotations

import ast
import linecache
import warnings
from pathlib import Path
from typing import Any

import pytest

from whynan.source.trees import expression_of, function_of, parsed, statement_at, tree_of

PROGRAM = """\
import functools
def f(x):
    for i in x:
        a = i; b = a
    return b
@functools.cache
def g(): return 1
class C:
    async def f(self):
        pass
"""


def test_a_file_is_parsed_again_only_when_its_text_has_changed(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text("x = 1\n")
    first = tree_of(str(file))
    assert tree_of(str(file)) is first
    file.write_text("x = 1\ny = 2\n")
    linecache.checkcache(str(file))
    assert len(tree_of(str(file)).body) == 2


def test_a_cell_of_a_notebook_is_known_by_its_text() -> None:
    name = "<ipython-input-7-abcdef>"
    linecache.cache[name] = (6, None, ["x = 1\n"], name)
    try:
        assert ast.unparse(tree_of(name)) == "x = 1"
    finally:
        del linecache.cache[name]


@pytest.mark.parametrize("text", ["def f(:\n", "x = '\0'\n", "(" * 500])
def test_what_is_no_python_is_an_empty_tree(text: str, tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(text)
    assert tree_of(str(file)).body == []
    assert expression_of(text) is None


def test_the_warnings_of_the_program_stay_its_own(recwarn: pytest.WarningsRecorder) -> None:
    warnings.simplefilter("default")
    for _ in range(2):
        warnings.warn("once", UserWarning, stacklevel=1)
        parsed(f"text = '\\d'  # {len(recwarn)}")
        expression_of(f"'\\d{len(recwarn)}'")
    assert [str(w.message) for w in recwarn] == ["once"]


@pytest.mark.parametrize(
    ("line", "column", "found"),
    [(3, None, "for"), (4, None, "b = a"), (4, 8, "a = i"), (4, 15, "b = a"), (5, 4, "return b")],
)
def test_the_innermost_statement_of_a_line(line: int, column: int | None, found: str) -> None:
    function = parsed(PROGRAM).body[1]
    assert isinstance(function, ast.FunctionDef)
    statement = statement_at(function, line, column)
    assert statement is not None
    assert ast.unparse(statement).startswith(found)


def test_a_running_function_is_found_behind_its_decorators(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    names: dict[str, Any] = {}
    code = compile(PROGRAM, str(file), "exec")
    exec(code, names)
    assert function_of(code) is tree_of(str(file))
    for name, begin in (("f", 2), ("g", 7)):
        function = getattr(names[name], "__wrapped__", names[name])
        found = function_of(function.__code__)
        assert isinstance(found, ast.FunctionDef)
        assert found.lineno == begin
    method = vars(names["C"])["f"]
    assert isinstance(function_of(method.__code__), ast.AsyncFunctionDef)

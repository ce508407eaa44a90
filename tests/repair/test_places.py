"""Where a value is read: certain, or not claimed at all."""

from __future__ import annotations

import textwrap

import libcst as cst
import pytest

from whynan.repair.places import Lost, reads_of
from whynan.repair.source import Source


def reads(text: str, line: int) -> list[int]:
    """The lines that read what `p` is given on that line."""
    source = Source("program.py", textwrap.dedent(text).lstrip("\n"))
    (target,) = [
        n
        for n in source.every(cst.Name)
        if n.value == "p" and source.line(n) == line and not source.reads(n)
    ]
    return [source.line(place.node) for place in reads_of(source, target)]


def test_each_value_has_its_own_reads() -> None:
    text = """
    p = f()
    print(p)
    p = g(p)
    print(p, lambda q: q)
    """
    assert reads(text, 1) == [2, 3]
    assert reads(text, 3) == [4]


def test_a_function_with_a_variable_of_that_name_reads_its_own() -> None:
    text = """
    p = f()
    def show(p):
        print(p)
    def tell():
        print(p)
    """
    assert reads(text, 1) == [5]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param("p = a\nfor _ in b:\n    q = f(p)\n    p = g(q)\n", 4, id="comes round"),
        pytest.param("if a:\n    p = f()\nprint(p)\n", 2, id="in a branch"),
        pytest.param("p = f()\np += 1\nprint(p)\n", 1, id="added to"),
        pytest.param("p = f()\np.clamp_(0)\nprint(p)\n", 1, id="changed in place"),
        pytest.param("p = f()\np[0] = 0\nprint(p)\n", 1, id="written to"),
        pytest.param("p = f()\ndef g():\n    print(p)\np = h()\n", 1, id="read later"),
    ],
)
def test_what_is_not_certain_is_not_told(text: str, line: int) -> None:
    with pytest.raises(Lost):
        reads(text, line)


def test_a_module_that_is_cast_is_the_same_module() -> None:
    assert reads("p = Net()\np.half()\nfor x in data:\n    p(x)\n", 1) == [2, 4]

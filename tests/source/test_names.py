"""What a name holds where it is read: certain, one of several, or unknown."""

from __future__ import annotations

import ast
import textwrap

import pytest

from whynan.source.bindings import Binding, place
from whynan.source.names import Names, names_of
from whynan.source.trees import parsed


def shown(binding: Binding | None) -> str:
    """`softmax(z)` for a value that is certain; `either: f(), g()` for choices."""
    if binding is None:
        return "unknown"
    if binding.choices:
        return f"{binding.how}: {', '.join(map(shown, binding.sources))}"
    value = ast.unparse(binding.value) if binding.value is not None else ""
    value = value or binding.imported
    index = "" if binding.index is None else f"[{binding.index}]"
    return value if binding.how == "is" else " ".join(filter(None, (binding.how, value + index)))


def asked(text: str) -> tuple[Names, ast.expr]:
    """The names of a program, and the argument of its only call of `use`."""
    tree = parsed(textwrap.dedent(text).strip("\n"))
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and place(n.func) == "use"]
    return names_of(tree), calls[0].args[0]


def answer(text: str) -> str:
    names, read = asked(text)
    return shown(names.given(read))


ROWS = [
    # statements that give a value
    ("x = f()\nuse(x)", "f()"),
    ("x: float = 1.0\nuse(x)", "1.0"),
    ("x: float\nuse(x)", "unknown"),
    ("x = y = f()\nuse(y)", "f()"),
    ("x = 1\nx = 2\nuse(x)", "2"),
    ("x = 1\nx = x + 1\nuse(x)", "x + 1"),
    ("x, y = a, b\nuse(y)", "b"),
    ("(x, [y, z]), w = (a, [b, c]), d\nuse(z)", "c"),
    ("x, y = pair\nuse(y)", "part pair[1]"),
    ("(x, y), z = pair\nuse(y)", "part pair"),
    ("x, *y = a, b, c\nuse(y)", "part (a, b, c)[1]"),
    ("x, y = y, x\nuse(x)", "y"),
    ("x = 1\nx += f()\nuse(x)", "added f()"),
    ("if (x := f()):\n    use(x)", "f()"),
    ("print(x := 1, x := 2)\nuse(x)", "2"),
    ("with f() as x:\n    use(x)", "entered f()"),
    ("with f() as (x, y):\n    use(y)", "part f()[1]"),
    ("def x(): pass\nuse(x)", "defined"),
    ("class x: pass\nuse(x)", "defined"),
    ("x = 1\ndel x\nuse(x)", "deleted"),
    ("try:\n    f()\nexcept E as x:\n    use(x)", "caught"),
    ("match f():\n    case [x, *_]:\n        use(x)", "part"),
    ("match f():\n    case {'a': 1, **x}:\n        use(x)", "part"),
    ("use(x)\nx = 1", "unknown"),
    ("def f(x): use(x)", "parameter"),
    ("def f(a, x=1.0): use(x)", "parameter 1.0"),
    ("def f(a, /, b=2, *args, x=3, **more): use(x)", "parameter 3"),
    ("def f(*x): use(x)", "parameter"),
    # imports
    ("import torch.nn\nuse(torch)", "imported torch"),
    ("import torch.nn as x\nuse(x)", "imported torch.nn"),
    ("from torch.nn import functional as x\nuse(x)", "imported torch.nn.functional"),
    ("from . import x\nuse(x)", "imported ..x"),
    ("use(np)\nimport numpy as np", "unknown"),
    ("def f():\n    import numpy as np\ndef g(): use(np)", "unknown"),
    ("import torch as x\ndef f(x): use(x)", "parameter"),
    ("def f(): use(np)\nimport numpy as np", "imported numpy"),
    ("try:\n    import a as x\nexcept ImportError:\n    x = None\nuse(x)", "either: imported a, None"),
    ("try:\n    import a as x\nexcept ImportError:\n    raise\nuse(x)", "imported a"),
    # branches
    ("x = 1\nif c:\n    x = 2\nuse(x)", "either: 2, 1"),
    ("x = 1\nif c:\n    y = 2\nuse(x)", "1"),
    ("if c:\n    x = 1\nelse:\n    x = 2\nuse(x)", "either: 1, 2"),
    ("if c:\n    x = 1\nuse(x)", "either: 1"),
    ("x = 1\nif c:\n    x = 2\n    use(x)", "2"),
    ("x = 1\nif c:\n    x = 2\nelse:\n    use(x)", "1"),
    ("def f():\n    x = 1\n    if c:\n        x = 2\n        return x\n    use(x)", "1"),
    ("def f():\n    if c:\n        x = 2\n    else:\n        raise E\n    use(x)", "2"),
    ("x = 1\nif c:\n    x = 2\nelif d:\n    x = 3\nuse(x)", "either: 2, 3, 1"),
    ("x = 1\nif c and (x := f()):\n    pass\nuse(x)", "either: 1, f()"),
    ("x = 1\ny = (x := 2) if c else 3\nuse(x)", "either: 1, 2"),
    ("match c:\n    case 1:\n        x = 1\n    case _:\n        x = 2\nuse(x)", "either: 1, 2"),
    ("x = 0\nmatch c:\n    case 1:\n        x = 1\nuse(x)", "either: 1, 0"),
    ("match c:\n    case 1:\n        return\n    case _:\n        x = 2\nuse(x)", "2"),
    # exceptions
    ("x = 1\ntry:\n    x = f()\n    x = g()\nexcept E:\n    use(x)", "either: 1, f(), g()"),
    ("x = 1\ntry:\n    x = f()\nexcept E:\n    x = 2\nuse(x)", "either: f(), 2"),
    ("x = 1\ntry:\n    x = f()\nexcept E:\n    pass\nuse(x)", "either: f(), 1"),
    ("try:\n    y = f()\nexcept E:\n    pass\nelse:\n    x = y\n    use(x)", "y"),
    ("x = 1\ntry:\n    x = f()\nfinally:\n    use(x)", "either: 1, f()"),
    ("x = 1\ntry:\n    x = f()\nfinally:\n    g()\nuse(x)", "f()"),
    ("try:\n    x = f()\nfinally:\n    x = 2\nuse(x)", "2"),
    # loops
    ("for x in f():\n    use(x)", "item f()"),
    ("for x, y in zip(a, b):\n    use(y)", "item b"),
    ("for i, x in enumerate(a):\n    use(x)", "part enumerate(a)[1]"),
    ("x = 1\nfor i in a:\n    use(x)", "1"),
    ("x = 1\nfor i in a:\n    use(x)\n    x = 2", "again: 1, 2"),
    ("x = 1\nfor i in a:\n    x = 2\n    use(x)", "2"),
    ("for i in a:\n    if c:\n        use(x)\n    x = f(i)", "again: f(i)"),
    ("x = 1\nfor i in a:\n    x = 2\nuse(x)", "either: 2, 1"),
    ("for x in a:\n    pass\nuse(x)", "either: item a"),
    ("x = 1\nwhile True:\n    if c:\n        x = 2\n        break\nuse(x)", "again: 1, 2"),
    ("x = 1\nwhile use(x):\n    x = 2", "again: 1, 2"),
    ("x = 1\nwhile c:\n    x += 1\nelse:\n    x = 3\nuse(x)", "3"),
    ("x = 1\nfor i in a:\n    for j in b:\n        use(x)\n    x = j", "again: 1, j"),
    ("x = 1\nfor i in a:\n    if c:\n        continue\n    x = 2\n    use(x)", "2"),
    # values that are changed where they are
    ("x = f()\nx[0] = 1\nuse(x)", "changed x[0]"),
    ("x = f()\nx[i] += 1\nuse(x)", "changed"),
    ("x = f()\nx.clamp_(0)\nuse(x)", "changed x.clamp_(0)"),
    ("x = f()\ny = x.clamp_(0)\nuse(x)", "changed x.clamp_(0)"),
    ("x = []\nx.append(1)\nuse(x)", "[]"),
    ("x = net()\nx.half()\nuse(x)", "changed x.half()"),
    ("x = y.half()\nuse(y)", "unknown"),
    ("x = f()\nx.backward()\nuse(x)", "f()"),
    ("x = 1\nx.__init__(2)\nuse(x)", "1"),
    # attributes and entries
    ("def f(self):\n    self.x = 1\n    use(self.x)", "1"),
    ("def f(self):\n    self.x = 1\n    self = g()\n    use(self.x)", "unknown"),
    ("def f(self):\n    if c:\n        self.x = 1\n    use(self.x)", "either: 1"),
    ("def f(self):\n    self.x.y = 1\n    self.x = 2\n    use(self.x.y)", "unknown"),
    ("x = {}\nx['a'] = 1\nx['b'] = 2\nuse(x['a'])", "1"),
    ("x = {}\nx['a'] = 1\nx[key] = 2\nuse(x['a'])", "unknown"),
    ("x.a['b'].c = 1\nuse(x.a['b'].c)", "1"),
    # scopes
    ("x = 1\ndef f(): use(x)", "1"),
    ("x = 1\ndef f(): use(x)\nx = 2", "any: 1, 2"),
    ("x = 1\ndef f():\n    use(x)\n    x = 2", "unknown"),
    ("x = 1\ndef f():\n    x = 2\nuse(x)", "1"),
    ("x = 1\ndef f():\n    global x\n    x = 2\nuse(x)", "any: 1, 2"),
    ("def f():\n    x = 1\n    def g():\n        nonlocal x\n        x = 2\n    use(x)", "any: 1, 2"),
    ("def f():\n    x = 1\n    def g():\n        def h(): use(x)", "1"),
    ("x = {}\ndef f():\n    x['a'] = 1\nuse(x)", "any: {}, changed x['a']"),
    ("def f(x):\n    g = lambda: use(x)\n    x = 2", "any: parameter, 2"),
    ("x = 1\nf = lambda x=2: use(x)", "parameter 2"),
    ("x = 1\nclass A:\n    x = 2\n    use(x)", "2"),
    ("x = 1\nclass A:\n    x = 2\n    def f(self): use(x)", "1"),
    ("x = 1\nclass A:\n    use(x)\nx = 2", "1"),
    ("class A:\n    x = 1\nuse(x)", "unknown"),
    # comprehensions
    ("x = 1\ny = [use(x) for x in a]", "item a"),
    ("x = 1\ny = [x for x in a]\nuse(x)", "1"),
    ("x = 1\ny = [x for x in use(x)]", "1"),
    ("y = [use(x) for y in a for x in y]", "item y"),
    ("x = 1\ny = [x := i for i in a]\nuse(x)", "either: 1, i"),
    ("x = 1\ny = {k: use(x) for k in a}", "1"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), ROWS)
def test_what_a_name_holds(text: str, expected: str) -> None:
    inside = "def program():\n" + textwrap.indent(text, "    ")
    if "return" in text and not text.startswith("def"):
        text = inside
    assert answer(text) == expected
    if "global" not in text:
        assert answer(inside) == expected, "in a function"


def test_a_target_that_is_added_to_holds_what_was_there() -> None:
    tree = parsed("x = f()\nx += 1\nself.y = 2\nself.y *= 3\n")
    names = names_of(tree)
    targets = [s.target for s in tree.body if isinstance(s, ast.AugAssign)]
    assert [shown(names.given(t)) for t in targets] == ["f()", "2"]
    assert [shown(names.bindings[t]) for t in targets] == ["added 1", "added 3"]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("x = f()\na(x)\nx = g(x)\nb(x)", [2, 3]),
        ("x = f()\nif c:\n    a(x)\n    x = 1\nb(x)", [3, 5]),
        ("x = f()\nfor i in a:\n    b(x)\n    x = g()", [3]),
        ("x = f()\ndef g(): a(x)\ndef h(x): a(x)", [2]),
        ("x = f()\nx += 1\na(x)", [2]),
        ("x = f()\nx[0] = 1\na(x)", [2]),
        ("x = f()\na(f'{x:.3f}', *x, **x, k=x.y[0])", [2, 2, 2, 2]),
    ],
)
def test_who_reads_a_value(text: str, lines: list[int]) -> None:
    names = names_of(parsed(text))
    (binding,) = [b for b in names.module.bound["x"] if shown(b) == "f()"]
    assert [read.lineno for read in names.reads(binding)] == lines


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1\nuse(y)", "1"),
        ("x = 1\nx = use(y)", "1"),
        ("if c:\n    x = 1\nelse:\n    use(y)", "unknown"),
        ("x = 1\nif c:\n    x = 2\n    use(y)\nelse:\n    x = 3", "2"),
        ("x = 1\nwhile use(y):\n    x = 2", "again: 1, 2"),
        ("x = 1\nwhile c:\n    x = 2\n    x = 3\nuse(y)", "either: 3, 1, 2"),
        ("x = 1\ndef f():\n    use(y)", "1"),
        ("def f(x):\n    return 0\n    use(y)", "unknown"),
    ],
)
def test_what_a_name_would_hold_in_another_statement(text: str, expected: str) -> None:
    names, read = asked(text)
    around = [n for n in ast.walk(parsed(text)) if isinstance(n, ast.stmt) and n in names._moments]
    inner = [n for n in around if any(m is read for m in ast.walk(n))]
    statement = inner[-1] if inner else ast.Pass()
    assert shown(names.before(statement, "x")) == expected


def test_attributes_of_a_class_are_collected_from_its_methods() -> None:
    text = """
    class A:
        z = 0
        def __init__(self, x):
            self.x, self.y = x, 1
            other.z = 2
        def forward(this):
            this.y = 3
            this.x.z = 4
    """
    tree = parsed(textwrap.dedent(text))
    owner = tree.body[0]
    assert isinstance(owner, ast.ClassDef)
    found = names_of(tree).attributes(owner)
    assert {n: [shown(b) for b in given] for n, given in found.items()} == {
        "x": ["x"],
        "y": ["1", "3"],
    }


def test_what_is_nested_too_deeply_is_not_followed() -> None:
    deep = "x = 1\n" + "".join(" " * i + "if c:\n" for i in range(90)) + " " * 90 + "use(x)\n"
    assert answer(deep) == "1"
    long = "x = 1\nif c: pass\n" + "elif c: pass\n" * 2000 + "use(x)\n"
    try:
        tree = parsed(long)
    except RecursionError:
        return
    assert names_of(tree).module.bound.keys() <= {"x"}

"""A value that the program reads and tests itself is no harm, wherever the test stands."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

import whynan

HEAD = """
import math
import unittest
from math import isnan as nanq

import numpy as np
import numpy as xp
import torch
import own_checks
from own_checks import finite_only, is_bad as broken, keeps_going

INF = float("inf")


def bad():
    return torch.zeros(2).log().diff().sum()


def some():
    return torch.tensor([1.0, 0.0]) / torch.tensor([1.0, 0.0])


def infinite():
    return torch.zeros(()).log().neg()


def value_of(t):
    return t.item()


def passed_on(t):
    return value_of(t)


def with_loss(t):
    return t, t.item()


def answer(t):
    return math.isnan(t) or math.isinf(t)


class State:
    last = 0.0

    def read(self, t):
        self.last = t.item()

    def is_bad(self):
        return math.isnan(self.last)


kept = []


def keep(t):
    kept.append(t.item())


def case():
"""
OWN_CHECKS = """
import math


def is_bad(v):
    return math.isnan(v) or math.isinf(v)


def finite_only(values):
    return [v for v in values if not is_bad(v)]


def keeps_going(v):
    return v > 0


class Meter:
    def __init__(self):
        self.total, self.count, self.left_out = 0.0, 0, 0

    def update(self, value, weight=1):
        if not math.isfinite(value):
            self.left_out += weight
            return
        self.total += value * weight
        self.count += weight
        self.mean = self.total / self.count


class Plain:
    def update(self, value):
        self.total = value
"""


def anomalies(body: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    (folder / "own_checks.py").write_text(OWN_CHECKS)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "own_checks", raising=False)
    source = HEAD + textwrap.indent(textwrap.dedent(body).strip("\n"), "    ") + "\n"
    path = folder / "program.py"
    path.write_text(source)
    space: dict[str, Callable[[], object]] = {}
    exec(compile(source, str(path), "exec"), space)
    with whynan.trace() as trace:
        space["case"]()
    return len(whynan.diagnose(trace).anomalies)


TESTED = {
    "in the caller": "v = value_of(bad())\nif math.isnan(v): return",
    "in the caller's own expression": "if math.isnan(value_of(bad())): return",
    "through two functions": "v = passed_on(bad())\nif v != v: return",
    "one of two results": "loss, v = with_loss(bad())\nif not math.isfinite(v): return",
    "one of two assigned": "v, k = bad().item(), 3\nif math.isnan(v): return",
    "an attribute": "s = State()\ns.last = bad().item()\nif math.isnan(s.last): return",
    "an attribute that a method set": "s = State()\ns.read(bad())\nif math.isnan(s.last): return",
    "a method that asks": "s = State()\ns.read(bad())\nif s.is_bad(): return",
    "an entry": "d = {}\nd['loss'] = bad().item()\nif math.isnan(d['loss']): return",
    "an entry of a literal": "d = {'loss': bad().item()}\nif math.isnan(d['loss']): return",
    "every entry": "d = {}\nd['a'] = bad().item()\nif any(math.isnan(v) for v in d.values()): return",
    "a list that a function fills": "keep(bad())\nif math.isnan(kept[-1]): kept.pop()",
    "imported from a file": "if broken(bad().item()): return",
    "of an imported file": "if own_checks.is_bad(bad().item()): return",
    "by keyword": "if own_checks.is_bad(v=bad().item()): return",
    "within a longer method": "m = own_checks.Meter()\nm.update(bad().item())",
    "a list for a file's function": "good = finite_only([bad().item(), 1.0])",
    "another name": "if nanq(bad().item()): return",
    "another name in the function": "from math import isnan as q\nif q(bad().item()): return",
    "another name of NumPy": "if xp.isnan(bad().item()): return",
    "one-sided": "if np.isneginf(infinite().neg().item()): return",
    "of pandas": "import pandas as pd\nif pd.isna(bad().item()): return",
    "of pandas, a tensor": "import pandas as pd\nif pd.isnull(bad().numpy()): return",
    "not equal to itself, not": "v = bad().item()\nif not v == v: return",
    "both sides read": "l = bad()\nif l.item() != l.item(): return",
    "among infinities": "v = infinite().item()\nif v in (math.inf, -math.inf): return",
    "is infinity": "v = infinite().item()\nassert v == float('inf')",
    "is not infinity": "v = infinite().item()\nif v != np.inf: return v",
    "is the program's infinity": "v = infinite().item()\nif v == INF: return",
    "below infinity": "v = bad().item()\nif v < float('inf'): return v",
    "as unittest asks": (
        "t = unittest.TestCase()\nt.assertEqual(torch.zeros(()).log().item(), -math.inf)"
    ),
    "as NumPy's tests ask": "np.testing.assert_equal(bad().item(), np.nan)",
    "its text": "if str(bad().item()) == 'nan': return",
    "its formatted text": "l = bad()\nif 'nan' in f'{l.item()}': return",
    "of a tensor": "if math.isnan(bad()): return",
    "of a tensor, elsewhere": "if answer(bad()): return",
    "chosen": "print([v for v in some().tolist() if not math.isnan(v)])",
    "any": "if any(math.isnan(v) for v in some().tolist()): return",
    "each": "for v in some().tolist():\n    if math.isnan(v): continue",
    "each, counted": "for i, v in enumerate(some().tolist()):\n    if math.isnan(v): continue",
    "each, read inside": "good = [v for v in (t.item() for t in some()) if v == v]",
    "each row": (
        "import pandas as pd\nrows = []\nrows.append({'a': bad().item()})\n"
        "table = pd.DataFrame(rows)\nprint(len(table.dropna()))"
    ),
    "made of a model's output": (
        "net = torch.nn.Linear(2, 1)\nwith torch.no_grad():\n"
        "    per = [net(some()).mean().item() for _ in range(30)]\n"
        "good = [v for v in per if not math.isnan(v)]"
    ),
    "a name that is given what it was made into": (
        "def step(loss):\n    loss = loss.mean()\n    v = value_of(loss)\n    loss.detach()\n"
        "    if broken(v): return\nstep(bad())"
    ),
    "yielded": (
        "def values():\n    for t in some():\n        yield t.item()\n"
        "for v in values():\n    if math.isnan(v): continue"
    ),
    "by a function of the function": (
        "def check(v): return v != v\nif check(bad().item()): return"
    ),
    "by a function without a name": "check = lambda v: v != v\nif check(bad().item()): return",
    "over several lines": (
        "s = State()\n(\n    s\n    .read(bad())\n)\nif math.isnan(s.last): return"
    ),
    "by an assertion of its own": "def assert_fine(v): v != v\nassert_fine(bad().item())",
    "told of in a function": (
        "def tell(t): print('bad', t.item())\nfor _ in range(2):\n"
        "    loss = bad()\n    if torch.isnan(loss): tell(loss); continue"
    ),
}

UNTESTED = {
    "returned and printed": "v = value_of(bad())\nprint(v)",
    "returned through two functions": "v = passed_on(bad())\nw = 1.0\nif math.isnan(w): return",
    "the other of two results": "v, k = with_loss(bad())\nif math.isnan(2.0): return\nprint(k)",
    "the other of two assigned": "v, k = bad().item(), 3\nif math.isnan(k): return\nprint(v)",
    "another attribute": "s = State()\ns.last = bad().item()\ns.lr = 1.0\nif math.isnan(s.lr): return",
    "another attribute than the method's": (
        "s = State()\ns.lr = 1.0\ns.read(bad())\nif math.isnan(s.lr): return"
    ),
    "another object's method": "s, o = State(), State()\ns.read(bad())\nif o.is_bad(): return",
    "another entry": "d = {'lr': 1.0}\nd['loss'] = bad().item()\nif math.isnan(d['lr']): return",
    "another entry of a literal": "d = {'a': bad().item(), 'b': 1.0}\nif math.isnan(d['b']): return",
    "another list": "keep(bad())\nother = [1.0]\nif math.isnan(other[-1]): return",
    "a file's function that does not ask": "if keeps_going(bad().item()): return",
    "a method of that name that does not ask": "m = own_checks.Plain()\nm.update(bad().item())",
    "another value for the file's function": "v = bad().item()\nif broken(1.0): return\nprint(v)",
    "another name, another value": "v = bad().item()\nif nanq(2.0): return\nprint(v)",
    "equal to a number": "v = bad().item()\nif v == 3.0: return",
    "equal to NaN": "v = bad().item()\nif v == float('nan'): return\nprint(v)",
    "less than the best": "best = float('inf')\nv = bad().item()\nif v < best: best = v",
    "another is infinity": "v, w = infinite().item(), 1.0\nif w == math.inf: return\nprint(v)",
    "close to a number": "v = bad().item()\nif math.isclose(v, 1.0): return",
    "unittest asks for a number": (
        "t = unittest.TestCase()\nt.assertNotEqual(torch.zeros(()).log().item(), 3.0)"
    ),
    "its text is printed": "print(str(bad().item()))",
    "its text is another's": "v = str(bad().item())\nif 'loss' in v: return",
    "converted and printed": "print(float(bad()))",
    "chosen by another condition": "print([v for v in some().tolist() if v is not None])",
    "each is printed": "for v in some().tolist():\n    print(v)",
    "the other of each pair": (
        "for a, b in zip([1.0, 2.0], some().tolist()):\n    if math.isnan(a): continue\n    print(b)"
    ),
    "the number is asked, not the value": (
        "for i, v in enumerate(some().tolist()):\n    if math.isnan(i): continue\n    print(v)"
    ),
    "rows of a table that is printed": (
        "import pandas as pd\nrows = []\nrows.append({'a': bad().item()})\n"
        "other = pd.DataFrame([1.0]).dropna()\nprint(pd.DataFrame(rows))"
    ),
    "made of another than the model's output": (
        "net = torch.nn.Linear(2, 1)\nwith torch.no_grad():\n"
        "    for _ in range(2):\n        net(some())\n"
        "        v = infinite().item()\n        if math.isinf(v): continue"
    ),
    "yielded and printed": (
        "def values():\n    for t in some():\n        yield t.item()\n"
        "for v in values():\n    print(v)\n    if math.isnan(2.0): continue"
    ),
    "after many that it tested": (
        "for _ in range(30):\n    v = infinite().item()\n    if math.isinf(v): continue\n"
        "print(bad().item())"
    ),
    "the module is asked for another": (
        "other = torch.ones(1)\nif torch.isfinite(other): print(torch.log(torch.zeros(1)).item())"
    ),
    "told of after a test of another attribute": (
        "class Step:\n    def run(self):\n        self.lr, self.loss = 0.1, bad()\n"
        "        if math.isfinite(self.lr): print(self.loss.item())\nStep().run()"
    ),
    "told of without a test": (
        "def tell(t): print('bad', t.item())\nfor _ in range(2):\n"
        "    loss = bad()\n    if torch.isnan(torch.ones(())): continue\n    tell(loss)"
    ),
    "told of after a test of what it is made of": (
        "def tell(t): print('bad', t.item())\nfor _ in range(2):\n"
        "    x = torch.zeros(())\n    if torch.isfinite(x): tell(x.log())"
    ),
}


@pytest.mark.parametrize("body", TESTED.values(), ids=[k.replace(" ", "_") for k in TESTED])
def test_a_value_that_the_program_tests_is_no_harm(
    body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert anomalies(body, tmp_path, monkeypatch) == 0


@pytest.mark.parametrize("body", UNTESTED.values(), ids=[k.replace(" ", "_") for k in UNTESTED])
def test_a_value_that_the_program_does_not_test_is_harm(
    body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert anomalies(body, tmp_path, monkeypatch) == 1

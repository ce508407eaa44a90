"""What a name was given: certain, or not used."""

from __future__ import annotations

import textwrap

import libcst as cst
import pytest

from whynan.repair.edit import Edit
from whynan.repair.source import Source


def source(text: str) -> Source:
    return Source("program.py", textwrap.dedent(text))


def last(parsed: Source, name: str) -> cst.Name:
    return [n for n in parsed.every(cst.Name) if n.value == name][-1]


def test_a_name_is_followed_to_its_value() -> None:
    parsed = source("def f(x):\n    q = softmax(x)\n    return log(q)\n")
    value = parsed.definition(last(parsed, "q"))
    assert value is not None
    assert parsed.code(value) == "softmax(x)"


@pytest.mark.parametrize(
    "body",
    [
        "q = softmax(x)\n    x = 2 * x\n    return log(q)",
        "q = softmax(x)\n    x[0] = 1\n    return log(q)",
        "q = softmax(x)\n    x.mul_(2)\n    return log(q)",
        "q = softmax(x)\n    q[0] = 0\n    return log(q)",
        "q = softmax(x)\n    q += 1\n    return log(q)",
        "q = x\n    if x:\n        q = softmax(x)\n    return log(q)",
        "q, r = softmax(x), x\n    return log(q)",
        "for q in softmax(x):\n        pass\n    return log(q)",
        "return log(q)",
    ],
)
def test_a_doubtful_value_is_not_used(body: str) -> None:
    parsed = source(f"def f(x, q=None):\n    {body}\n")
    value = parsed.definition(last(parsed, "q"))
    assert value is None


def test_another_function_is_another_world() -> None:
    parsed = source("def g(x):\n    q = softmax(x)\n\ndef f(q):\n    return log(q)\n")
    assert parsed.definition(last(parsed, "q")) is None


def test_edits_keep_comments_layout_and_line_endings() -> None:
    text = "import torch\r\n\r\n# above\r\nx = 1  # right\r\ny = (  # open\r\n    x\r\n)\r\nz = x+y\r\n"
    parsed = Source("program.py", text)
    line = parsed.statement(last(parsed, "x"))
    assert line is not None
    edit = Edit(parsed).replace(last(parsed, "x"), "x.clamp(min=1)").before(line, "w = 2")
    expected = text.replace("z = x+y", "w = 2\r\nz = x.clamp(min=1)+y")
    assert edit.text() == expected


def test_torch_is_imported_where_a_change_needs_it() -> None:
    parsed = source("from __future__ import annotations\nfrom lib import x\n\ny = x\n")
    text = Edit(parsed).replace(last(parsed, "x"), "torch.abs(x)").text()
    assert text.splitlines()[:3] == [
        "from __future__ import annotations",
        "import torch",
        "from lib import x",
    ]


@pytest.mark.parametrize(
    ("head", "becomes"),
    [
        ("import torch as th\n", "import torch as th\ny = th.log(x)\n"),
        ("import torch.nn as nn\n", "import torch\nimport torch.nn as nn\ny = torch.log(x)\n"),
        ("import torch.nn\n", "import torch.nn\ny = torch.log(x)\n"),
        (
            '"""Words."""\nfrom __future__ import annotations\n',
            '"""Words."""\nfrom __future__ import annotations\nimport torch\ny = torch.log(x)\n',
        ),
        (
            "# torch.log in words\nfrom torch import log\n",
            "# torch.log in words\nimport torch\nfrom torch import log\ny = torch.log(x)\n",
        ),
    ],
)
def test_torch_is_called_as_the_file_calls_it(head: str, becomes: str) -> None:
    parsed = source(f"{head}y = log(x)\n")
    assert Edit(parsed).replace(parsed.every(cst.Call)[-1], "torch.log(x)").text() == becomes

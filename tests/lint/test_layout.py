"""A fix sits in its place as if it had been typed there: brackets, line lengths, no leftovers."""

from __future__ import annotations

import textwrap

import pytest

from tests.lint.test_fixer import fixed
from tests.lint.test_patterns import findings
from whynan.lint.fixer import fix


def body(text: str, prelude: str = "import torch\nimport torch.nn.functional as F\n") -> str:
    """What becomes of the body of a function of x, y, h, m."""
    inside = textwrap.indent(textwrap.dedent(text).strip("\n"), "    ")
    after = fixed(f"{prelude}def f(x, y, h, m):\n{inside}\n")
    return textwrap.dedent(after.split("def f(x, y, h, m):\n")[1])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("return 1 - torch.exp(x)", "return -torch.expm1(x)"),
        ("return y * (1 - torch.exp(x))", "return y * (-torch.expm1(x))"),
        ("return (1 - torch.exp(x)) ** 2", "return (-torch.expm1(x)) ** 2"),
        ("return torch.sqrt(1 - torch.exp(x))", "return torch.sqrt(-torch.expm1(x))"),
        ("return y * (torch.exp(x) - 1) / h", "return y * torch.expm1(x) / h"),
        ("return (torch.exp(x) - 1)", "return torch.expm1(x)"),
        ("return(torch.exp(x) - 1)", "return(torch.expm1(x))"),
        ("return h(torch.exp(x) - 1)", "return h(torch.expm1(x))"),
        ("return h (torch.exp(x) - 1)", "return h (torch.expm1(x))"),
        ("return h[0](torch.exp(x) - 1)", "return h[0](torch.expm1(x))"),
        ("return y - torch.sub(1, torch.exp(x))", "return y - (-torch.expm1(x))"),
        ("return y / (torch.exp(x) - x - 1)", "return y / (torch.expm1(x) - x)"),
        ("return y - torch.log(1 - torch.tanh(x) ** 2).sum(-1)", "return y - (2 * (0.6931471805599453 - x - F.softplus(-2 * x))).sum(-1)"),
        ("return h(torch.log(1 - torch.tanh(x) ** 2))", "return h(2 * (0.6931471805599453 - x - F.softplus(-2 * x)))"),
        ("return not x.exp() != float('nan')", "return not ~torch.isnan(x.exp())"),
    ],
)  # fmt: skip
def test_brackets_are_those_that_are_needed(before: str, after: str) -> None:
    assert body(before) == after + "\n"


@pytest.mark.parametrize(
    "before",
    [
        "return torch.log(1 + x, out=y)",
        "return torch.log(torch.softmax(x, dim=1, dtype=torch.float64))",
        "return torch.log(torch.sum(torch.exp(x), dim=1, dtype=torch.float64))",
        "p = torch.softmax(x, dim=1, dtype=torch.float64)\nreturn torch.log(p)",
        "return torch.sub(1, torch.exp(x), alpha=2)",
        "return torch.log(torch.softmax(*x, dim=1))",
        "return torch.logit(torch.sigmoid(x), 1e-6)",
    ],
)
def test_an_argument_that_the_fix_does_not_know_is_not_dropped(before: str) -> None:
    assert body(before) == before + "\n"


@pytest.mark.parametrize(
    "before",
    [
        "return np.log(1 - x, out=y, where=x < 1)",
        "return np.mean(x**2, 0, np.float32) - np.mean(x, 0, np.float32) ** 2",
        "return np.exp(x, dtype=np.float64) - 1",
    ],
)
def test_an_argument_of_numpy_is_not_dropped(before: str) -> None:
    assert body(before, "import numpy as np\n") == before + "\n"


def test_a_number_that_is_an_attribute_stays_one() -> None:
    text = """
        import torch
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.offset = 1.0
            def forward(self, x):
                return torch.log(x.float() + self.offset)
    """
    assert "torch.log(x.float() + self.offset)" in fixed(text)


def test_an_attribute_that_a_method_may_change_is_not_read_again() -> None:
    text = """
        import torch
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.{} = torch.zeros(3)
            def advance(self):
                self.state = torch.ones(3)
            def forward(self):
                p = torch.softmax(self.{}, dim=0)
                self.advance()
                return torch.log(p)
    """
    assert "return torch.log(p)" in fixed(text.format("state", "state"))
    assert "log_softmax(self.fixed, dim=0)" in fixed(text.format("fixed", "fixed"))


def test_a_variable_of_the_enclosing_function_must_be_the_same_at_every_call() -> None:
    text = """
        import torch
        def outer(x):
            p = torch.softmax(x, dim=1)
            def inner():
                return torch.log(p)
            {}
            return inner
    """
    assert "return torch.log(p)" in fixed(text.format("x = None"))
    assert "log_softmax(x, dim=1)" in fixed(text.format("y = None"))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("p = x.softmax(-1)\nreturn p.log()", "return F.log_softmax(x, dim=-1)"),
        ("e = x.exp()\ntotal = e.sum(0)\nreturn e / total", "return torch.softmax(x, dim=0)"),
        ("p = torch.sigmoid(x)\nreturn y * p.log() + (1 - y) * (1 - p).log()", "return y * F.logsigmoid(x) + (1 - y) * F.logsigmoid(-x)"),
        ("p = x.softmax(-1)\nreturn p.log(), p", "p = x.softmax(-1)\nreturn F.log_softmax(x, dim=-1), p"),
        ("p = x.softmax(-1)  # of the teacher\nreturn p.log()", "p = x.softmax(-1)  # of the teacher\nreturn F.log_softmax(x, dim=-1)"),
        ("unused = x.sum()\nreturn x.softmax(-1).log()", "unused = x.sum()\nreturn F.log_softmax(x, dim=-1)"),
        ("p = x.softmax(-1)\nh(locals())\nreturn p.log()", "p = x.softmax(-1)\nh(locals())\nreturn F.log_softmax(x, dim=-1)"),
        ("if m:\n    p = x.softmax(-1)\n    return p.log()\nreturn x", "if m:\n    return F.log_softmax(x, dim=-1)\nreturn x"),
    ],
)  # fmt: skip
def test_what_only_the_replaced_text_read_goes_with_it(before: str, after: str) -> None:
    assert body(before) == after + "\n"


@pytest.mark.parametrize(
    "before",
    [
        "p = torch.softmax(x @ y, dim=1)\nreturn torch.log(p)",
        "p = torch.softmax(torch.matmul(x, y), dim=1)\nreturn torch.log(p), p",
        "return torch.where(x @ y > 0, torch.log(x @ y), 0.0)",
        "return torch.where(torch.rand_like(x) > x, y / x, 0.0)",
    ],
)
def test_products_and_random_numbers_are_not_computed_twice(before: str) -> None:
    assert body(before) == before + "\n"


def test_the_double_where_keeps_the_dtype() -> None:
    import torch

    after = body("return torch.where(m > 0, x / m, x)")
    assert after == "return torch.where(m > 0, x / torch.where(m > 0, m, 1), x)\n"
    space: dict[str, object] = {}
    exec(f"import torch\ndef f(x, m):\n    {after}", space)
    x, m = torch.ones(2, dtype=torch.float16), torch.tensor([0, 2])
    assert space["f"](x, m).dtype == torch.float16  # type: ignore[operator]  # a function


LONG = "return torch.where(numerator_of_it > 0, denominator / numerator_of_it, denominator)"


def test_a_line_is_not_made_longer_than_those_of_its_file() -> None:
    call = "torch.where(numerator_of_it > 0, numerator_of_it, 1)"
    text = f"import torch\n\n\ndef f(numerator_of_it, denominator):\n    {LONG}\n"
    assert fixed(text).splitlines()[4:] == [
        "    return torch.where(",
        "        numerator_of_it > 0,",
        f"        denominator / {call},",
        "        denominator,",
        "    )",
    ]
    wide = text + f"# {'-' * 50}\nx = [{', '.join('1' * 42)}]\n"
    assert f"    return torch.where(numerator_of_it > 0, denominator / {call}, denominator)\n" in fixed(wide)  # fmt: skip
    narrow = text.replace("denominator", "d") + "x = 1\n" * 100
    assert max(map(len, fixed(narrow).splitlines())) <= 79


def test_a_long_line_with_a_comment_is_left_in_one() -> None:
    text = f"import torch\ndef f(numerator_of_it, denominator):\n    {LONG}  # type: ignore[no]\n"
    assert len(fixed(text).splitlines()) == 3


def test_nothing_is_changed_inside_an_f_string() -> None:
    text = "import torch\ndef f(x):\n    return f'{1} {torch.log(torch.softmax(x, 1))}'\n"
    assert [f.slug for f in findings(text)] == ["log-softmax"]
    assert fixed(text) == text


def test_where_lines_must_stay_no_line_is_added_or_taken_away() -> None:
    text = textwrap.dedent(
        """
        from torch import Tensor
        def f(x: Tensor, y: Tensor):
            p = x.softmax(-1)
            a = (
                x.exp()
                - 1
            )
            return p.log(), y.sigmoid().log()
        """
    )
    after, made = fix(text, findings, keep_lines=True)
    assert made == 1
    assert after == text.replace("p.log()", "x.log_softmax(dim=-1)")


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_every_kind_of_line_end_is_counted_alike(newline: str) -> None:
    text = f"import torch\ndef f(numerator_of_it, denominator):\n    p = numerator_of_it.sigmoid()\n    s = '\f\x0b\u2028'\n    d = p.log()\n    {LONG}\n"
    after = fix(text.replace("\n", newline), findings)[0].split(newline)
    assert after[2:4] == ["    s = '\f\x0b\u2028'", "    d = torch.nn.functional.logsigmoid(numerator_of_it)"]  # fmt: skip
    assert after[4] == "    return torch.where("
    assert len(after) == 10


def test_whole_numbers_are_not_handed_to_what_takes_fractions_only() -> None:
    before = "return torch.sqrt((torch.arange(5) - 3).pow(2).sum())"
    assert body(before) == before + "\n"
    assert "vector_norm" in body(before.replace("arange(5)", "arange(5.0)"))
    assert "vector_norm" in body(before.replace("arange(5)", "arange(5).float()"))
    before = "n = x.argmax(1)\nreturn torch.log(1 + torch.exp(n - 1))"
    assert body(before) == before + "\n"

"""Imports have a position and a scope, and a library is known for what it is."""

from __future__ import annotations

import ast
import textwrap

import pytest

from tests.lint.test_fixer import fixed
from tests.lint.test_patterns import findings
from whynan.lint.names import Names


def slugs(text: str) -> list[str]:
    return [f.slug for f in findings(textwrap.dedent(text))]


def at_function(text: str, name: str, function: str = "f") -> tuple[str, bool]:
    """What a name means in the first line of a function, and whether it is certainly bound there."""
    tree = ast.parse(textwrap.dedent(text))
    names = Names(tree, text)
    node = next(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == function)
    scope, first = names.of(node), node.body[0]
    return scope.meaning(name), scope.is_bound(name, (first.lineno, first.col_offset))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import torch as F\ndef f(): pass", ("torch", True)),
        ("def f(): pass\nimport torch as F", ("torch", False)),
        ("def f():\n    import torch as F; pass", ("torch", False)),
        ("def g():\n    import torch as F\ndef f(): pass", ("", False)),
        ("import torch as F\ndef f(F): pass", ("", False)),
        ("import torch as F\ndef f(): pass\nF = 1", ("", False)),
        ("import torch as F\ndef f(): pass\nF = None", ("torch", False)),
        ("import torch as F\ndef f(): pass\ndel F", ("torch", False)),
        ("import torch as F\nimport jax as F\ndef f(): pass", ("", False)),
        ("from . import functional as F\ndef f(): pass", ("", False)),
        ("if x:\n    import torch as F\ndef f(): pass", ("torch", False)),
        ("if x:\n    import torch as F\n    def f(): pass", ("torch", True)),
        ("try:\n    import torch as F\nexcept ImportError:\n    raise\ndef f(): pass", ("torch", True)),
        ("try:\n    import torch as F\nexcept ImportError:\n    pass\ndef f(): pass", ("torch", False)),
        ("try:\n    import torch as F\nexcept ImportError:\n    pass\nelse:\n    def f(): pass", ("torch", True)),
        ("try:\n    pass\nfinally:\n    import torch as F\ndef f(): pass", ("torch", True)),
        ("with a:\n    import torch as F\ndef f(): pass", ("torch", False)),
        ("class A:\n    import torch as F\n    def f(self): pass", ("", False)),
        ("import torch as F\nclass A:\n    F = 1\n    def f(self): pass", ("torch", True)),
        ("import torch as F\ndef g():\n    global F\n    F = 1\ndef f(): pass", ("", False)),
        ("def g():\n    global F\n    import torch as F\ndef f(): pass", ("torch", False)),
        ("def g():\n    import torch as F\n    def f(): pass", ("torch", True)),
        ("def g():\n    def f(): pass\n    import torch as F", ("torch", False)),
        ("from torch import log as F\nfrom own import *\ndef f(): pass", ("", False)),
        ("from torch.nn import functional as F\nfrom own import *\ndef f(): pass", ("torch.nn.functional", True)),
    ],
)  # fmt: skip
def test_a_name_means_what_its_scope_says(text: str, expected: tuple[str, bool]) -> None:
    assert at_function(text, "F") == expected


def test_a_function_of_the_program_is_not_the_import_of_its_name() -> None:
    own = """
        from math import log
        import torch
        def log(x):
            return x.clamp(min=1e-6)
        def f(x):
            return log(torch.softmax(x, dim=1))
    """
    assert slugs(own) == []
    assert slugs(own.replace("def log(x)", "def safe(x)")) == ["log-softmax"]


def test_builtins_that_the_program_redefines_are_its_own() -> None:
    text = "import torch\ndef max(a, b):\n    return a\ndef f(x, m):\n    m = m.bool()\n    return (x * m).sum() / {}(m.sum(), 1)\n"
    assert slugs(text.format("max")) == []
    assert slugs("import torch\ndef f(x, m):\n    return (x * m).sum() / max(m.sum(), 1)\n") == []


def test_local_alias_of_a_module_is_that_module() -> None:
    text = "import {0}\nnp = {1}\ndef f(x):\n    return np.exp(x) - 1\n"
    assert slugs(text.format("numpy", "numpy")) == ["expm1"]
    assert slugs(text.format("jax.numpy", "jax.numpy")) == []


@pytest.mark.parametrize(
    "annotation", ["jnp.ndarray", "jax.Array", "'jnp.ndarray'", "jnp.ndarray | None"]
)
def test_annotations_of_another_library_are_no_arrays_of_numpy(annotation: str) -> None:
    text = f"import jax\nimport numpy as np\nimport jax.numpy as jnp\ndef f(x: {annotation}):\n    return (x**2).mean() - x.mean() ** 2\n"
    (found,) = findings(text)
    assert (found.slug, found.replacement) == ("var-two-moment", None)
    assert "torch" not in found.help
    assert "correction" not in found.help
    after = fixed(text.replace(annotation, "np.ndarray"))
    assert "np.var(x)" in after


def test_what_is_true_everywhere_is_said_in_neutral_words() -> None:
    text = "import jax.numpy as jnp\nimport numpy as np\ndef f(x, valid):\n    m = jnp.asarray(valid) > 0\n    return (x * m).sum() / m.sum()\n"
    (found,) = findings(text)
    assert found.slug == "masked-mean"
    assert "clamp" not in found.help


def test_claims_about_gradients_of_torch_are_not_made_about_other_libraries() -> None:
    text = "import {0}\nimport numpy\nclass Net({0}.nn.Layer):\n    def forward(self, x):\n        return (x * x).sum(-1).sqrt()\n"
    assert slugs(text.format("torch")) == ["sqrt-sum-sq"]
    assert slugs(text.format("paddle")) == []


def test_a_variable_of_unknown_kind_is_taken_for_a_tensor_only_beside_torch() -> None:
    body = "def f(x, y):\n    m = y > 0\n    {}return (x * m).sum() / m.sum()\n"
    both = "import numpy as np\nimport torch\n"
    assert "clamp" not in fixed(both + body.format(""))
    assert "clamp" not in fixed("import torch\n" + body.format(""))
    assert "clamp" not in fixed(both + body.format("np.seterr()\n    torch.manual_seed(0)\n    "))
    assert "clamp(min=1)" in fixed(both + body.format("y = torch.relu(y)\n    "))


def test_one_file_may_speak_of_two_libraries_in_two_functions() -> None:
    text = """
        import torch
        import jax.numpy as jnp
        def to_jax(x):
            return jnp.asarray(x)
        def of_jax(x, m):
            e = x.exp()
            return jnp.sum(e), e / e.sum(-1, keepdim=True)
        def of_torch(x, m):
            e = x.exp()
            return torch.sum(e), e / e.sum(-1, keepdim=True)
    """
    after = fixed(text)
    assert "return jnp.sum(e), e / e.sum(-1, keepdim=True)" in after
    assert "return torch.sum(e), torch.softmax(x, dim=-1)" in after


def test_lazy_and_optional_imports_stay_lazy_and_optional() -> None:
    text = """
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            from torch import Tensor
        def f(x: "Tensor"):
            return x.softmax(-1).log(), x.sigmoid().log()
    """
    after = fixed(text)
    # A method needs no import; a function would.
    assert "return x.log_softmax(dim=-1), x.sigmoid().log()" in after
    assert "import torch" not in after


def test_import_is_not_added_over_a_name_of_the_program() -> None:
    text = "from torch import Tensor\ntorch = 'a word'\ndef f(x: Tensor):\n    return x.sigmoid().log()\n"
    assert fixed(text) == text

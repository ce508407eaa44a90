"""Programs that put the body of an example where names mean something else, or nothing yet.

Each place takes a body of `tests.lint.examples` and gives a whole program that leaves what the body
returns in RESULT; `x, y, z, mask, model, target` are variables of the module.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable

from tests.lint.examples import PRELUDE

Place = Callable[[str], str]
ARGUMENTS = "x, y, z, mask, model, target"
LOCALS = ("math", "np", "torch", "t", "nn", "F", "log", "softmax")
CALL = f"RESULT = f({ARGUMENTS})\n"


def indented(text: str, by: int = 4) -> str:
    return textwrap.indent(textwrap.dedent(text).strip("\n") + "\n", " " * by)


def function(body: str, *more: str, first: str = "", name: str = "f") -> str:
    """The body as a function, with further parameters, and statements before it."""
    parameters = ", ".join([ARGUMENTS, *more])
    return f"def {name}({parameters}):\n{indented(first) if first else ''}{indented(body)}\n"


def unused(body: str) -> list[str]:
    """The imported names that a body does not mention."""
    words = set(re.findall(r"\w+", re.sub(r"\.\w+", "", body)))
    return [name for name in LOCALS if name not in words]


def above_the_import_called_later(body: str) -> str:
    return function(body) + PRELUDE + CALL


def above_the_import_called_at_once(body: str) -> str:
    return function(body) + CALL + PRELUDE


def statements_above_the_import(body: str) -> str:
    return re.sub(r"\breturn\b", "RESULT =", textwrap.dedent(body)) + "\n" + PRELUDE


def between_two_imports(body: str) -> str:
    return (
        "import torch\nimport numpy as np\nimport math\n"
        + re.sub(r"\breturn\b", "RESULT =", textwrap.dedent(body))
        + "\n"
        + PRELUDE
    )


def import_inside(body: str) -> str:
    return function(body, first=PRELUDE) + CALL


def import_inside_another_function(body: str) -> str:
    return function("return 1", first=PRELUDE, name="g") + function(body) + CALL


def import_below_in_the_same_function(body: str) -> str:
    ending = re.sub(r"\breturn\b", "result =", textwrap.dedent(body)).strip("\n")
    return PRELUDE + function(f"{ending}\n{PRELUDE}return result") + CALL


def import_inside_on_one_way(body: str) -> str:
    return PRELUDE + function(body, first=f"if x is None:\n{indented(PRELUDE)}") + CALL


def import_in_an_enclosing_function_below(body: str) -> str:
    inner = function(body, name="inner")
    first = f"{inner}result = inner({ARGUMENTS})\n{PRELUDE}"
    return function("return result", first=first) + CALL


def import_in_the_class_body(body: str) -> str:
    method = function(body).replace("def f(", "def f(self, ")
    return f"class A:\n{indented(PRELUDE)}{indented(method)}RESULT = A().f({ARGUMENTS})\n"


def import_for_type_checkers(body: str) -> str:
    return (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n"
        + indented(PRELUDE)
        + function(body)
        + CALL
    )


def import_that_may_fail(body: str) -> str:
    # The names after the one that is missing are never bound.
    listed = indented(f"import numpy as np\nimport torch\nimport absent_module\n{PRELUDE}")
    return f"try:\n{listed}except ImportError:\n    pass\n{function(body)}{CALL}"


def import_that_is_taken_back(body: str) -> str:
    return PRELUDE + function(body) + f"del {', '.join(unused(body))}\n{CALL}"


def import_by_a_function_that_sets_globals(body: str) -> str:
    return (
        function("return 1", first=f"global {', '.join(LOCALS)}\n{PRELUDE}", name="load")
        + function(body)
        + CALL
    )


def _shadowed(body: str, by: Callable[[str], str]) -> str:
    lines = "".join(by(name) for name in unused(body))
    return f"{PRELUDE}{lines}{function(body)}{CALL}"


def parameters_of_the_same_name(body: str) -> str:
    return PRELUDE + function(body, *(f"{name}=None" for name in unused(body))) + CALL


def parameters_of_an_enclosing_function(body: str) -> str:
    inner = function(body, name="inner")
    more = [f"{name}=None" for name in unused(body)]
    return PRELUDE + function(f"return inner({ARGUMENTS})", *more, first=inner) + CALL


def functions_of_the_same_name(body: str) -> str:
    return _shadowed(body, lambda name: f"def {name}(a):\n    return a\n")


def classes_of_the_same_name(body: str) -> str:
    return _shadowed(body, lambda name: f"class {name}:\n    pass\n")


def loop_variables_of_the_same_name(body: str) -> str:
    return _shadowed(body, lambda name: f"for {name} in range(2):\n    pass\n")


def names_of_context_managers(body: str) -> str:
    return _shadowed(body, lambda name: f"import io\nwith io.StringIO() as {name}:\n    pass\n")


def names_of_exceptions(body: str) -> str:
    return _shadowed(
        body, lambda name: f"try:\n    raise ValueError\nexcept ValueError as {name}:\n    pass\n"
    )


def names_matched(body: str) -> str:
    return _shadowed(body, lambda name: f"match [1, 2]:\n    case [{name}, *_]:\n        pass\n")


def names_assigned_in_an_expression(body: str) -> str:
    return _shadowed(body, lambda name: f"if ({name} := 3) > 2:\n    pass\n")


def names_assigned_through_global(body: str) -> str:
    return _shadowed(
        body, lambda name: f"def set_{name}():\n    global {name}\n    {name} = 1\nset_{name}()\n"
    )


def variables_of_the_function(body: str) -> str:
    first = "".join(f"{name} = 1\n" for name in unused(body)) or "pass\n"
    return PRELUDE + function(body, first=first) + CALL


def variables_of_a_lambda(body: str) -> str:
    """Only what is one expression can stand in a lambda."""
    expression = textwrap.dedent(body).strip("\n")
    if not expression.startswith("return ") or "\n" in expression:
        return function(body) + "RESULT = 0\n"
    more = ", ".join([ARGUMENTS, *(f"{name}=None" for name in unused(body))])
    return f"{PRELUDE}f = lambda {more}: {expression[7:]}\n{CALL}"


def variables_of_a_comprehension(body: str) -> str:
    expression = textwrap.dedent(body).strip("\n")
    if not expression.startswith("return ") or "\n" in expression:
        return function(body) + "RESULT = 0\n"
    names = ", ".join(["w", *unused(body)])
    values = ", ".join(["1"] * (len(unused(body)) + 1))
    return f"{PRELUDE}RESULT = [{expression[7:]} for {names} in [({values},)]][0]\n"


PLACES: list[Place] = [
    above_the_import_called_later,
    above_the_import_called_at_once,
    statements_above_the_import,
    between_two_imports,
    import_inside,
    import_inside_another_function,
    import_below_in_the_same_function,
    import_inside_on_one_way,
    import_in_an_enclosing_function_below,
    import_in_the_class_body,
    import_for_type_checkers,
    import_that_may_fail,
    import_that_is_taken_back,
    import_by_a_function_that_sets_globals,
    parameters_of_the_same_name,
    parameters_of_an_enclosing_function,
    functions_of_the_same_name,
    classes_of_the_same_name,
    loop_variables_of_the_same_name,
    names_of_context_managers,
    names_of_exceptions,
    names_matched,
    names_assigned_in_an_expression,
    names_assigned_through_global,
    variables_of_the_function,
    variables_of_a_lambda,
    variables_of_a_comprehension,
]

# Other ways to import, and how an example is then spelled.
IMPORTS: dict[str, tuple[str, dict[str, str]]] = {
    "torch as t": (
        "import torch as t\n",
        {"torch": "t", "F": "t.nn.functional", "nn": "t.nn", "log": "t.log", "softmax": "t.softmax"},
    ),
    "nn alone": ("from torch import nn\n", {"F": "nn.functional"}),
    "nnf alone": ("import torch.nn.functional as nnf\n", {"F": "nnf"}),
    "nnf and torch": ("import torch\nimport torch.nn.functional as nnf\n", {"F": "nnf", "nn": "torch.nn", "log": "torch.log", "softmax": "torch.softmax"}),
    "functions": ("from torch import Tensor, exp, log, mean, norm, sigmoid, softmax, tanh, where\n", {}),
    "a class": ("from torch import Tensor\n", {}),
    "numpy functions": ("from numpy import exp, log, log1p as l1p, mean\n", {"np.exp": "exp", "np.log": "log", "np.mean": "mean"}),
    "math functions": ("from math import exp, log\nimport torch\n", {"math.exp": "exp"}),
    "submodules": ("import torch.nn.functional\nimport numpy.linalg\n", {"F": "torch.nn.functional", "nn": "torch.nn", "np": "numpy"}),
    "alias": ("import torch\nF = torch.nn.functional\nnp = __import__('numpy')\n", {"nn": "torch.nn"}),
    "with a fallback": ("try:\n    import torch\n    import numpy as np\nexcept ImportError:\n    torch = np = None\n", {"F": "torch.nn.functional", "nn": "torch.nn"}),
    "that must succeed": ("try:\n    import torch\nexcept ImportError:\n    raise SystemExit(1)\n", {"F": "torch.nn.functional", "nn": "torch.nn"}),
}  # fmt: skip


def respelled(body: str, names: dict[str, str]) -> str:
    """The body with other names for what it calls."""
    for old, new in names.items():
        tail = r"\b" if "." in old else r"(?=\.)" if old in ("torch", "np", "nn", "F") else r"(?=\()"  # fmt: skip
        body = re.sub(rf"(?<![\w.]){re.escape(old)}{tail}", new, body)
    return body


def imported_as(way: str) -> Place:
    prelude, names = IMPORTS[way]
    return lambda body: prelude + function(respelled(body, names)) + CALL

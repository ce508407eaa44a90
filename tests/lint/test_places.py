"""Wherever a fix is made, every name in it is bound there: each program is fixed and executed."""

from __future__ import annotations

import builtins
import itertools
import symtable
import warnings
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from tests.lint.examples import FOUND, program
from tests.lint.places import (
    CALL,
    IMPORTS,
    PLACES,
    Place,
    above_the_import_called_later,
    function,
    import_inside,
    imported_as,
    parameters_of_the_same_name,
    respelled,
)
from tests.lint.test_patterns import findings
from whynan.lint.fixer import fix

MATRIX = [[0.5, 0.1, 0.2], [0.1, 0.6, 0.3], [0.2, 0.3, 0.7]]
# These mean to give another result: random numbers, and a comparison that never holds.
OTHER_RESULT = {"gumbel-log-log", "nan-compare"}


def fixed(text: str) -> str:
    return fix(text, findings)[0]


BODIES = [(slug, body) for slug, bodies in FOUND.items() for body in bodies]
FIXABLE = [(slug, body) for slug, body in BODIES if fixed(program(body)) != program(body)]


def arguments() -> Iterator[dict[str, Any]]:
    """Values under which at least one spelling of every example runs."""
    targets = (torch.tensor([0, 2, 1]), torch.tensor(MATRIX))
    masks = (torch.tensor(MATRIX) > 0.25, torch.eye(3))
    for target, mask in itertools.product(targets, masks):
        yield {"x": torch.tensor(MATRIX), "y": 2 * torch.tensor(MATRIX), "mask": mask, "target": target}  # fmt: skip
    yield {"x": np.array(MATRIX), "y": 2 * np.array(MATRIX), "mask": np.eye(3), "target": None}
    yield {"x": jnp.array(MATRIX), "y": 2 * jnp.array(MATRIX), "mask": jnp.eye(3), "target": None}
    yield {"x": 0.25, "y": 0.5, "mask": 1.0, "target": None}


VALUES = list(arguments())


def outcome(text: str, values: dict[str, Any]) -> Any:
    """What the program leaves in RESULT, or the exception that ended it."""
    space = {"__name__": "program", "model": torch.nn.Identity(), "z": None, **values}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            exec(compile(text, "program.py", "exec"), space)
        except (Exception, SystemExit) as error:
            return error
    return space["RESULT"]


def is_kept(before: Any, after: Any) -> bool:
    """Has the fixed program the same numbers, of the same type, where there were numbers before?"""
    if type(before) is not type(after):
        return False
    tolerance = 1e-5
    if isinstance(before, torch.Tensor):
        if before.dtype != after.dtype:
            return False
        tolerance = 1e-2 if before.dtype == torch.float16 else tolerance
        before, after = before.double(), after.double()
    old, new = np.asarray(before), np.asarray(after)
    known = ~np.isnan(old)
    return old.shape == new.shape and np.allclose(old[known], new[known], rtol=tolerance, atol=1e-6)


def undefined(text: str) -> set[str]:
    """Names that are read somewhere and bound nowhere, as the compiler sees scopes."""
    top = symtable.symtable(text, "program.py", "exec")
    bound = {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported()}
    found: set[str] = set()
    tables = [top]
    while tables:
        table = tables.pop()
        tables.extend(table.get_children())
        for symbol in table.get_symbols():
            name = symbol.get_name()
            if symbol.is_declared_global() and symbol.is_assigned():
                bound.add(name)
            if symbol.is_referenced() and (symbol.is_global() or table is top):
                found.add(name)
    return found - bound - set(dir(builtins)) - {"__name__", "__file__"}


def complaints(slug: str, text: str) -> list[str]:
    """What the fix broke in one program."""
    after = fixed(text)
    if after == text:
        return []
    told = [f"{name} is bound nowhere in\n{after}" for name in undefined(after) - undefined(text)]
    for values in VALUES:
        before = outcome(text, values)
        if isinstance(before, BaseException):
            continue
        result = outcome(after, values)
        if isinstance(result, BaseException):
            told.append(f"{type(result).__name__}: {result}\n{after}")
        elif slug not in OTHER_RESULT and not is_kept(before, result):
            told.append(f"{before} became {result}\n{after}")
    return told


def tried(place: Place) -> list[str]:
    return [c for slug, body in BODIES for c in complaints(slug, place(body))]


@pytest.mark.parametrize("place", PLACES, ids=lambda p: p.__name__)
def test_a_fix_runs_wherever_the_original_runs(place: Place) -> None:
    assert tried(place) == []


@pytest.mark.parametrize("way", IMPORTS)
def test_a_fix_uses_the_names_that_the_file_has(way: str) -> None:
    assert tried(imported_as(way)) == []


def test_the_examples_run_and_are_fixed() -> None:
    """What the tests above stand on: most examples run as they are, and are changed in most places."""
    assert len(FIXABLE) > 60
    for place in (above_the_import_called_later, import_inside, parameters_of_the_same_name):
        texts = [place(body) for _, body in FIXABLE]
        assert sum(fixed(text) != text for text in texts) > 0.85 * len(texts)
        runs = [any(not isinstance(outcome(t, v), BaseException) for v in VALUES) for t in texts]
        assert sum(runs) > 0.95 * len(texts)
    for way in ("torch as t", "nnf and torch", "submodules", "that must succeed"):
        texts = [imported_as(way)(body) for _, body in FIXABLE]
        assert sum(fixed(text) != text for text in texts) > 0.7 * len(texts)


JAX = {
    "jnp": ("import jax\nimport jax.numpy as jnp\n", {"torch": "jnp", "F": "jax.nn", "np": "jnp"}),
    "as np": ("import jax\nimport jax.numpy as np\n", {"torch": "np", "F": "jax.nn"}),
    "from jax": ("import jax\nfrom jax import numpy as np\n", {"torch": "np", "F": "jax.nn"}),
    "assigned": ("import jax\nnp = jax.numpy\n", {"torch": "np", "F": "jax.nn"}),
    "beside numpy": (
        "import jax\nimport numpy as np\nimport jax.numpy as jnp\n",
        {"torch": "jnp", "F": "jax.nn", "np": "jnp"},
    ),
    "beside torch": (
        "import jax\nimport torch\nimport jax.numpy as jnp\n"
        "def to_jax(a):\n    return jnp.asarray(torch.as_tensor(a).numpy())\n",
        {"torch": "jnp", "F": "jax.nn", "np": "jnp"},
    ),
    "inside": ("import jax\nimport numpy as np\n", {"torch": "np", "F": "jax.nn"}),
}


@pytest.mark.parametrize("way", JAX)
def test_nothing_of_torch_or_numpy_is_written_into_jax(way: str) -> None:
    prelude, names = JAX[way]
    first = "import jax.numpy as np" if way == "inside" else ""
    for slug, body in BODIES:
        spelled = respelled(body, names)
        if "nn." in spelled.replace("jax.nn.", "") or spelled.lstrip().startswith("return log("):
            continue  # of torch alone
        text = prelude + function(spelled, first=first) + CALL
        assert complaints(slug, text) == []
        after = fixed(text)
        for word in ("torch.", "np.", "masked_fill(", "clamp("):
            assert after.count(word) == text.count(word), after


OTHERS = {
    "tensorflow": "import tensorflow as lib\nfrom tensorflow import nn as F\n",
    "cupy": "import cupy as lib\nimport cupyx.scipy.special as F\n",
    "mlx": "import mlx.core as lib\nimport mlx.nn as F\n",
    "paddle": "import paddle as lib\nimport paddle.nn.functional as F\n",
    "mxnet": "from mxnet import np as lib, npx as F\n",
    "tinygrad": "from tinygrad import Tensor, Tensor as lib, nn as F\n",
}


@pytest.mark.parametrize("library", OTHERS)
def test_other_array_libraries_are_left_alone(library: str) -> None:
    prelude = OTHERS[library]
    for _, body in BODIES:
        spelled = respelled(body, {"torch": "lib", "t": "lib", "np": "lib", "nn": "F", "log": "lib.log", "softmax": "F.softmax", "math": "lib"})  # fmt: skip
        for more in ("", "import numpy as np\n", "import torch\n"):
            text = prelude + more + function(spelled)
            assert fixed(text) == text
        method = f"class Net(F.Layer):\n    def forward(self, {'x, y, z, mask, model, target'}):\n"
        inside = "".join(f"        {line}\n" for line in spelled.splitlines())
        assert fixed(prelude + method + inside) == prelude + method + inside

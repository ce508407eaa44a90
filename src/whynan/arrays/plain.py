"""Plain numbers of Python and NumPy: what is one, which are bad, what computes from nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from whynan.arrays.numpy_errors import is_pure

SIMPLE = (
    abs, bool, divmod, enumerate, float, int, len, list, max, min, pow, range, reversed, round, sorted,
    str, sum, tuple, zip,
)  # fmt: skip


MAX_ITEMS = 1000
READS = ("item", "tolist")


class Unknown(Exception):
    """It cannot be known without running the program."""


def is_number(value: Any) -> bool:
    """Of Python or NumPy, alone or in an array."""
    if type(value) in (int, float, bool):
        return True
    return type(value).__module__ == "numpy" and getattr(getattr(value, "dtype", None), "kind", "O") in "biuf"  # fmt: skip


def is_bad(value: Any) -> bool:
    """NaN or infinite, or with such a one in it."""
    if type(value) is float:
        return not math.isfinite(value)
    if isinstance(value, (list, tuple)):
        return any(is_bad(v) for v in value[:MAX_ITEMS])
    if type(value) is int or not is_number(value):
        return False
    import numpy as np

    return not bool(np.isfinite(value).all())


def same_kind(one: Any, other: Any) -> bool:
    """Whether two bad numbers are both NaN, or the same infinity."""
    if not (is_bad(one) and is_bad(other)):
        return False
    import numpy as np

    return bool(np.array_equal(np.asarray(one), np.asarray(other), equal_nan=True))


def is_simple(function: Any) -> bool:
    """A function that computes from numbers and does nothing else."""
    with suppress(TypeError):  # it cannot be compared
        if any(function is f for f in SIMPLE):
            return True
    owner = getattr(function, "__self__", None)
    if isinstance(owner, dict):
        return getattr(function, "__name__", "") in ("get", "items", "keys", "values")
    if getattr(function, "__module__", None) == "math" or is_read(function):
        return True
    is_type = isinstance(function, type) and function.__module__ == "numpy"
    return is_type or is_pure(function)


def is_tensor(value: Any) -> bool:
    """An ordinary one: to read a distributed one would make all ranks talk."""
    return (type(value).__module__, type(value).__name__) in (
        ("torch", "Tensor"), ("torch.nn.parameter", "Parameter"),
    )  # fmt: skip


def is_read(function: Any) -> bool:
    """`tensor.item`, `tensor.tolist`."""
    owner, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
    return name in READS and is_tensor(owner)


def is_module(value: Any) -> bool:
    """A layer of torch's, which is called by its `forward`."""
    return any(kind.__module__ == "torch.nn.modules.module" for kind in type(value).__mro__)


def is_data(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(is_data(v) for v in value)
    return is_number(value) or isinstance(value, (str, range, dict, zip, enumerate, type(None)))


def flat(given: list[Any]) -> Iterator[Any]:
    for value in given:
        yield from value if isinstance(value, (list, tuple)) else (value,)


def truth(value: Any) -> bool:
    if not is_data(value) and value is not None:
        raise Unknown
    return bool(asked(bool, value))


def asked(function: Callable[..., Any], *given: Any, **named: Any) -> Any:
    with _unknown_if_it_fails():
        return function(*given, **named)


@contextmanager
def _unknown_if_it_fails() -> Iterator[None]:
    try:
        yield
    except Exception:
        raise Unknown from None

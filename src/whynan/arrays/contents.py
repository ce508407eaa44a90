"""Which NaN or infinities a value of the program holds, as far as one can see undisturbed."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable
from itertools import islice
from types import FunctionType, ModuleType
from typing import Any

from whynan.arrays.libraries import is_floating, library_of
from whynan.checking.distributions import to_numpy

DEPTH = 3
ITEMS = 1000
TOKEN = re.compile(r"(?<![\w.])[-+]?(?:nan|NaN|inf)(?!\w)")  # NaN: pandas, JSON
NONE: frozenset[str] = frozenset()


def kinds_in(value: Any, depth: int = DEPTH) -> frozenset[str] | None:
    """`nan`, `inf` or both; None: it cannot be said."""
    if isinstance(value, (float, complex)):
        value = complex(value)
        return _kinds(value != value, math.isinf(value.real) or math.isinf(value.imag))
    if isinstance(value, str):
        return kinds_of_text(value)
    if value is None or isinstance(value, (int, bytes, type, ModuleType, FunctionType)):
        return NONE
    array = _as_array(value)
    if array is not None:
        return _in_array(array)
    if depth == 0:
        return None
    if isinstance(value, dict):
        return _union(value.values(), depth)
    if isinstance(value, (list, tuple, set, frozenset)):
        return _union(value, depth)
    inside = getattr(value, "__dict__", None)
    return _union(inside.values(), depth) if isinstance(inside, dict) and inside else None


def kinds_of_text(text: str) -> frozenset[str]:
    """What is written in it as a number."""
    return frozenset(token.lstrip("+-").lower() for token in TOKEN.findall(text))


def _kinds(nan: bool, inf: bool) -> frozenset[str]:
    return frozenset(name for name, there in (("nan", nan), ("inf", inf)) if there)


def _union(values: Iterable[Any], depth: int) -> frozenset[str] | None:
    found: frozenset[str] = NONE
    known = True
    for value in islice(values, ITEMS):
        kinds = kinds_in(value, depth - 1)
        known = known and kinds is not None
        found |= kinds or NONE
    return found if found or known else None


def _as_array(value: Any) -> Any:
    np = sys.modules["numpy"]
    if isinstance(value, (np.ndarray, np.generic)):
        return value
    if type(value).__module__.split(".")[0] == "pandas" and hasattr(value, "to_numpy"):
        return value.to_numpy()
    if library_of(value) is not None:
        return to_numpy(value) if is_floating(value) else np.zeros(())
    return None


def _in_array(array: Any) -> frozenset[str] | None:
    np = sys.modules["numpy"]
    if array.dtype.kind in "fc":
        return _kinds(bool(np.isnan(array).any()), bool(np.isinf(array).any()))
    return _union(array.reshape(-1), 1) if array.dtype.kind == "O" else NONE

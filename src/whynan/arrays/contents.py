"""Whether a value of the program holds a NaN or infinity, as far as one can see without disturbing it."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable
from itertools import islice
from types import FunctionType, ModuleType
from typing import Any

DEPTH = 3
ITEMS = 1000
TOKEN = re.compile(r"(?<![\w.])[-+]?(?:nan|inf)(?!\w)")


def is_bad(value: Any, depth: int = DEPTH) -> bool | None:
    """None: it cannot be said."""
    if isinstance(value, (float, complex)):
        value = complex(value)
        return not (math.isfinite(value.real) and math.isfinite(value.imag))
    if isinstance(value, str):
        return TOKEN.search(value) is not None
    if value is None or isinstance(value, (int, bytes, type, ModuleType, FunctionType)):
        return False
    array = _as_array(value)
    if array is not None:
        return _array_is_bad(array)
    if depth == 0:
        return None
    if isinstance(value, dict):
        return _any(value.values(), depth)
    if isinstance(value, (list, tuple, set, frozenset)):
        return _any(value, depth)
    inside = getattr(value, "__dict__", None)
    return _any(inside.values(), depth) if isinstance(inside, dict) and inside else None


def _any(values: Iterable[Any], depth: int) -> bool | None:
    answers = [is_bad(v, depth - 1) for v in islice(values, ITEMS)]
    return True if True in answers else None if None in answers else False


def _as_array(value: Any) -> Any:
    np = sys.modules["numpy"]
    if isinstance(value, (np.ndarray, np.generic)):
        return value
    if type(value).__module__.split(".")[0] == "pandas" and hasattr(value, "to_numpy"):
        return value.to_numpy()
    return None


def _array_is_bad(array: Any) -> bool | None:
    np = sys.modules["numpy"]
    if array.dtype.kind in "fc":
        return not np.isfinite(array).all()
    if array.dtype.kind == "O":
        return _any(array.reshape(-1), 1)
    return False

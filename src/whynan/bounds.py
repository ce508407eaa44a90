"""How large what a saved run says can be: far more than whynan writes, and little enough to draw."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

from whynan.codec import Mismatch
from whynan.model import Held, Material, Site, TensorStats

MAX_BYTES = 256 << 20  # of the file
_TEXT = 1_000_000  # characters
_ITEMS = 100_000  # of a list
_FEW = {"evidence": 1_000, "notes": 10_000, "path": 20_000, "upstream": 20_000, "shape": 128}
_WHOLE = 1 << 64
_ELEMENTS = 1 << 63
_VALUES = 1 << 30  # of a tensor that is held, or only of its shape
_LINE, _COLUMN, _LINES = 10_000_000, 1_000_000, 10_000


# `whynan repro` executes these, and calls operations by these names: nothing else may stand there.
_SETTING = re.compile(
    r"torch\.(set_float32_matmul_precision\('\w+'\)|use_deterministic_algorithms\((True|False)\)"
    r"|set_default_dtype\(torch\.\w+\))"
)
_OPERATOR = re.compile(r"\w+\.\w+\.\w+")


def check(value: Any, place: str = "recording") -> None:
    """Raises `Mismatch` where it is more than that."""
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, int) and not -_WHOLE < value < _WHOLE:
        raise Mismatch("a number of more than 64 bits", place)
    if isinstance(value, str) and len(value) > _TEXT:
        raise Mismatch(f"a text of {len(value):,} characters", place)
    if isinstance(value, (tuple, Mapping)):
        most = _FEW.get(place, _ITEMS)
        if len(value) > most:
            raise Mismatch(f"{len(value):,} entries, more than {most:,}", place)
        for item in value if isinstance(value, tuple) else [*value.keys(), *value.values()]:
            check(item, place)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            check(getattr(value, field.name), field.name)
        _check_record(value)


def _check_record(value: Any) -> None:
    if isinstance(value, Material):
        if not all(map(_SETTING.fullmatch, value.settings)):
            raise Mismatch("a statement that whynan does not write", "settings")
        if not all(_OPERATOR.fullmatch(call.op) for call in value.calls):
            raise Mismatch("no operation is called that", "op")
    elif isinstance(value, Held):
        if min(value.shape, default=0) < 0 or math.prod(value.shape) > _VALUES:
            raise Mismatch("more values than a recording holds", "shape")
    elif isinstance(value, TensorStats):
        if min(value.shape, default=0) < 0 or math.prod(value.shape) >= _ELEMENTS:
            raise Mismatch("no tensor has that shape", "shape")
    elif isinstance(value, Site):
        columns = (value.column or 0, value.end_column or 0)
        if not (0 <= value.line <= value.end_line <= _LINE and min(columns) >= 0):
            raise Mismatch("no file has that line or column", "site")
        if max(columns) > _COLUMN or value.end_line - value.line > _LINES:
            raise Mismatch("no expression is as long as that", "site")

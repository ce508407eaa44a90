"""Rows that must be probabilities, or logits from which probabilities can be made."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from whynan.checking.array_blocks import dtype_name
from whynan.checking.verdicts import Trouble
from whynan.model import number

if TYPE_CHECKING:
    import numpy as np

# Beyond this gap to the row's largest logit, exp rounds to 0: ln of the smallest positive number.
EXP_GAP = {"float16": 17.3, "bfloat16": 92.2, "float32": 103.9, "float64": 745.1}

# A float32 softmax over 50,000 classes is off by more than the 1e-6 that `Categorical` allows.
TOLERANCE = {"float64": 1e-6, "float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}


def to_numpy(x: Any) -> np.ndarray[Any, Any]:
    """A copy on the host in float64, or what NumPy makes of it."""
    import numpy as np

    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        return x.detach().to("cpu", torch.float64).numpy()  # type: ignore[no-any-return] # torch
    if hasattr(x, "get") and "cupy" in type(x).__module__:
        x = x.get()
    elif hasattr(x, "__dlpack__") and not hasattr(x, "__array__"):
        x = np.from_dlpack(x)
    return np.asarray(x).astype(np.float64)


def probability_troubles(x: Any, dim: int, tolerance: float | None) -> list[Trouble]:
    """Rows that do not sum to 1 within `tolerance`, or what the type can hold."""
    import numpy as np

    within = tolerance if tolerance is not None else TOLERANCE.get(dtype_name(x), 1e-6)
    with np.errstate(all="ignore"):
        sums = to_numpy(x).sum(axis=_axis(x, dim))
        off = np.abs(sums - 1)
        wrong = np.isfinite(sums) & (off > within)
    if not wrong.any():
        return []
    worst = int(np.where(wrong, off, -1).argmax())
    return [_rows("sum", "sum to 1", wrong, f"{sums.reshape(-1)[worst]:.7g}", worst)]


def logit_troubles(x: Any, dim: int) -> list[Trouble]:
    """Rows without a single finite logit, and gaps so wide that softmax rounds to 0."""
    import numpy as np

    values, axis = to_numpy(x), _axis(x, dim)
    with np.errstate(all="ignore"):
        empty = np.isneginf(values).all(axis=axis)
        top = values.max(axis=axis, keepdims=True, initial=-np.inf)
        gap = np.where(np.isfinite(values) & np.isfinite(top), top - values, 0)
    found = []
    if empty.any():
        first = list(map(int, np.unravel_index(int(empty.argmax()), empty.shape)))
        rows = f"{int(empty.sum()):,} of {empty.size:,} rows are -inf throughout"
        found.append(Trouble(kind="masked", text=f"{rows}, first {first}", fault=True))
    widest, limit = float(gap.max(initial=0)), EXP_GAP.get(dtype_name(x), 745.1)
    if widest > limit:
        text = f"logits span {number(widest)}: softmax rounds to 0 beyond {limit:.0f}"
        found.append(Trouble(kind="gap", text=text))
    return found


def _rows(kind: str, wanted: str, wrong: Any, worst: str, position: int) -> Trouble:
    import numpy as np

    index = list(map(int, np.unravel_index(position, wrong.shape))) if wrong.ndim else []
    if wrong.size == 1:
        return Trouble(kind=kind, text=f"sums to {worst}", fault=True)
    text = f"{int(wrong.sum()):,} of {wrong.size:,} rows do not {wanted}: row {index} gives {worst}"
    return Trouble(kind=kind, text=text, fault=True)


def _axis(x: Any, dim: int) -> int:
    if not x.shape:
        raise ValueError("a scalar has no rows: give an array with at least one dimension")
    if not -len(x.shape) <= dim < len(x.shape):
        raise IndexError(f"dim {dim} of an array with {len(x.shape)} dimensions")
    return dim

"""`whynan.check` and `whynan.assert_finite`: any array, or anything that holds arrays."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections import deque
from collections.abc import Iterator, Mapping, ValuesView
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from whynan.checking.array_blocks import dtype_name, namespace_of, tally_namespace
from whynan.checking.distributions import logit_troubles, probability_troubles
from whynan.checking.picture import exponents_of
from whynan.checking.tally import Summary
from whynan.checking.troubles import KINDS, Thresholds, troubles_of
from whynan.checking.verdicts import Check, Item, Trouble
from whynan.source.positions import argument_at

DEEPEST = 50


def check(
    x: Any,
    *,
    name: str = "",
    probability: bool = False,
    logits: bool = False,
    dim: int = -1,
    only: str | tuple[str, ...] | None = None,
    raises: bool = False,
    tolerance: float | None = None,
    headroom: float = 16.0,
    outlier: float = 20.0,
) -> Check:
    """Look at every value of an array, or of all arrays in a container, module or table.

        >>> import whynan
        >>> print(whynan.check([0.5, float("nan"), 2.0], name="x"))
        x: 3 float64  in [0.5, 2]  mean 1.25, std 0.75  | 1 NaN (first at [1])

    The result is true when nothing is wrong, so `assert whynan.check(x)` works. NaN and infinities
    are wrong unless told otherwise; zeros, outliers, a range near the type's limit and the like
    are remarked.

    probability: along `dim`, values must be finite, not negative and sum to 1 within `tolerance`
        (what `multinomial` and `Categorical` need; 1e-5 in float32).
    logits: along `dim`, no NaN, no +inf and no row that is -inf throughout.
    only: exactly this kind or these are wrong, nothing else is remarked: "nan", "inf", "negative", "zero",
        "subnormal", "limit", "constant", "outlier".
    raises: raise `CheckFailed` (an AssertionError) instead of returning a bad result.
    headroom, outlier: remark a largest value within this factor of the type's limit; a value this
        many standard deviations from the mean.
    """
    if isinstance(only, str):
        only = (only,)
    unknown = set(only or ()) - set(KINDS)
    if unknown:
        raise ValueError(f"unknown kind {sorted(unknown)[0]!r}; known: {', '.join(KINDS)}")
    # One class that takes nearly all is what probabilities are for, no outlier.
    distance = math.inf if probability or logits else outlier
    thresholds = Thresholds(headroom=headroom, outlier=distance)
    faults = set(only) if only is not None else {"nan", "inf"} | ({"negative"} if probability else set())  # fmt: skip
    items = []
    for path, array in arrays_in(x, name):
        summary = _with_picture(summarise(array), array)
        found = list(troubles_of(summary, faults, thresholds))
        if probability:
            found += probability_troubles(array, dim, tolerance)
        if logits:
            found = [_masks_are_fine(t, summary) for t in found] + logit_troubles(array, dim)
        if only is not None:
            found = [t for t in found if t.fault]
        items.append(Item(name=path, summary=summary, troubles=tuple(found)))
    result = Check(items=tuple(items))
    if raises:
        result.raise_if_bad()
    return result


def _with_picture(summary: Summary, array: Any) -> Summary:
    """What a notebook draws; a sample, so that a large array costs no second pass."""
    stats = dataclasses.replace(summary.stats, exponents=exponents_of(array))
    return dataclasses.replace(summary, stats=stats)


def assert_finite(x: Any, name: str = "") -> None:
    """Raise `CheckFailed`, an AssertionError, when anything in `x` is NaN or infinite.

    >>> assert_finite({"loss": 0.25})

    Without a name, the argument is called what it is called in the source.
    """
    __tracebackhide__ = True  # pytest shows the caller's line
    with _unseen():
        arrays = list(arrays_in(x, name))
        for path, array in arrays:
            if getattr(array, "is_meta", False) is True:
                where = path or argument_at(sys._getframe(1)) or "the tensor"
                raise ValueError(f"{where} is on the meta device, which holds no values to check")
        if not all(_surely_finite(array) for _, array in arrays):
            name = name or argument_at(sys._getframe(1))
            check(x, name=name, only=("nan", "inf"), raises=True)


def _unseen() -> AbstractContextManager[Any]:
    """A look is not a use: a tracer that is on need not see it."""
    if "torch" not in sys.modules:
        return nullcontext()
    from whynan.seam.private import modes_off

    return modes_off()


def _surely_finite(array: Any) -> bool:
    """A finite sum proves finite values; anything else needs the full look."""
    import numpy as np

    if isinstance(array, np.ndarray) and not isinstance(array, np.ma.MaskedArray):
        if array.dtype.kind not in "fc":
            return True
        with np.errstate(all="ignore"):
            return bool(np.isfinite(array.sum()))
    torch: Any = sys.modules.get("torch")
    if torch is None or not isinstance(array, torch.Tensor) or array.layout is not torch.strided:
        return False
    if array.dtype not in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        return not (array.is_floating_point() or array.is_complex() or array.is_quantized)
    return bool(torch.isfinite(array.detach().sum()))


def _masks_are_fine(trouble: Trouble, summary: Summary) -> Trouble:
    """A -inf logit hides a class; only +inf is an error."""
    if trouble.kind == "inf" and not summary.stats.posinf:
        return dataclasses.replace(trouble, fault=False)
    return trouble


def summarise(array: Any) -> Summary:
    """Statistics of one array of any library."""
    import numpy as np

    torch: Any = sys.modules.get("torch")
    shape = tuple(int(n) for n in array.shape)
    if torch is not None and isinstance(array, torch.Tensor):
        from whynan.checking.torch_blocks import tally_tensor

        return tally_tensor(array).summary(
            shape=shape, dtype=dtype_name(array), device=str(array.device)
        )
    if isinstance(array, (np.ndarray, np.generic)):
        from whynan.checking.numpy_blocks import tally_array

        if isinstance(array, np.ma.MaskedArray):  # what is masked is no value
            shown = tally_array(array.compressed()).summary(shape=shape, dtype=array.dtype.name)
            return dataclasses.replace(shown, first_bad=None, farthest=None)
        return tally_array(np.asarray(array)).summary(shape=shape, dtype=array.dtype.name)
    tally = tally_namespace(array, namespace_of(array))
    return tally.summary(shape=shape, dtype=dtype_name(array), device=_device(array))


def _device(array: Any) -> str:
    text = str(getattr(array, "device", "cpu")).lower()
    return "cpu" if "cpu" in text else text.strip("<>")


def arrays_in(x: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Every array in `x` with the path that leads to it, each once."""
    found = list(_walk(x, name, {}, 0))
    if not found and not _holds_nothing(x):
        raise TypeError(f"no array, number or container of them in a {type(x).__name__}")
    return iter(found)


def _holds_nothing(x: Any) -> bool:
    return hasattr(x, "__len__") and not isinstance(x, (str, bytes)) and len(x) == 0


def _walk(x: Any, path: str, seen: dict[int, Any], depth: int) -> Iterator[tuple[str, Any]]:
    import numpy as np

    if isinstance(x, (str, bytes, bool, type, type(None))) or depth > DEEPEST:
        return
    if isinstance(x, (int, float, complex)):
        yield path, np.asarray(x)
        return
    if id(x) in seen:
        return
    if not isinstance(x, np.generic):
        seen[id(x)] = x  # kept, so that its id cannot become another's
    if isinstance(x, (set, frozenset, deque, ValuesView)):
        x = list(x)
    if hasattr(x, "columns") and hasattr(x, "to_numpy"):  # a pandas or polars table
        for column in x.columns:
            values = x[column].to_numpy()
            if values.dtype.kind in "fciub":
                yield _joined(path, column), values
    elif isinstance(x, np.ndarray) and x.dtype.names is not None:
        for field in x.dtype.names:
            yield from _walk(x[field], _joined(path, field), seen, depth + 1)
    elif isinstance(x, np.ndarray) and x.dtype.kind == "O":
        if all(v is None or isinstance(v, (int, float)) for v in x.flat):
            yield path, x.astype(np.float64)  # None is a number that is missing
        else:
            yield from _walk(x.tolist(), path, seen, depth + 1)
    elif _is_array(x) and getattr(x, "is_nested", False) is True:  # torch: rows of any length
        yield from _walk(x.unbind(), path, seen, depth + 1)
    elif _is_array(x):
        yield path, x
    elif hasattr(x, "to_numpy"):
        yield path, x.to_numpy()
    elif (numbers := _as_numbers(x)) is not None:
        yield path, numbers
    else:
        for key, part in _parts(x):
            yield from _walk(part, _joined(path, key), seen, depth + 1)


def _is_array(x: Any) -> bool:
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        return True
    return hasattr(x, "shape") and hasattr(x, "dtype") and namespace_of(x) is not None


def _as_numbers(x: Any) -> Any | None:
    """A list of plain numbers, also nested to equal lengths, is one array."""
    import numpy as np

    if not isinstance(x, (list, tuple)) or not x or hasattr(x, "_fields"):
        return None
    first: Any = x
    for _ in range(DEEPEST):
        if not isinstance(first, (list, tuple)) or not first:
            break
        first = first[0]
    if not isinstance(first, (int, float, complex)):
        return None
    try:
        array = np.array(x)
    except (ValueError, TypeError, OverflowError):
        return None
    return array if array.dtype.kind in "fciub" else None


def _parts(x: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(x, Mapping) or (hasattr(x, "keys") and hasattr(x, "__getitem__")):
        for key in x.keys():  # noqa: SIM118 # a mapping by its manners, such as an open .npz
            yield key, x[key]
    elif hasattr(x, "_fields"):
        yield from zip(x._fields, x, strict=True)
    elif isinstance(x, (list, tuple)):
        yield from enumerate(x)
    elif dataclasses.is_dataclass(x):
        for field in dataclasses.fields(x):
            yield field.name, getattr(x, field.name)
    elif callable(getattr(x, "state_dict", None)):
        yield from _parts(x.state_dict())
        for key, parameter in x.named_parameters() if hasattr(x, "named_parameters") else ():
            if parameter.grad is not None:
                yield f"{key}.grad", parameter.grad


def _joined(path: str, key: Any) -> str:
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else str(key)

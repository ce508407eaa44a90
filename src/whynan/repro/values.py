"""Values that anybody may see in the place of the program's own, as long as the same failure shows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from whynan.repro.case import Case
from whynan.repro.shrinking import Search
from whynan.seam.packing import named

FEW = 32  # values that are looked at one by one, and written into the script
SEEDS = 3
ROUND = 3  # digits of a number that is nobody's


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a tensor is written down; `text` is an expression of torch's, empty if the values are to be
    listed."""

    text: str = ""


@dataclass
class Values:
    """The case with the values that it ends up with."""

    case: Case
    recipes: dict[int, Recipe] = field(default_factory=dict)
    kept: list[int] = field(default_factory=list)  # tensors with values of the program's own


def simplify(search: Search, *, keep: bool) -> Values:
    """Each tensor for itself: one number, a few round ones, random ones, else as they are."""
    found = Values(search.case)
    for number in [*search.case.inputs, *search.case.incoming.values()]:
        recipe = Recipe() if keep else _replaced(search, number)
        found.recipes[number] = recipe
        tensor = search.case.tensors[number]
        if not recipe.text and (keep or not _is_nobodys(tensor)):
            found.kept.append(number)
    found.case = search.case
    return found


def _replaced(search: Search, number: int) -> Recipe:
    original = search.case.tensors[number]
    if original.numel() == 0:
        return Recipe(text=_call("torch.empty", original))
    # One number for all of it is the simplest, but hides which of a few values matters.
    if original.numel() > 1:
        for text in _constants(original):
            if _try(search, number, text):
                return Recipe(text=text)
    if original.numel() <= FEW:
        _round_each(search, number)
        if _is_nobodys(search.case.tensors[number]):
            return Recipe()
    for text in _random(original):
        if _try(search, number, text):
            return Recipe(text=text)
    for digits in range(1, ROUND + 1):
        if original.is_floating_point() and _put(search, number, _rounded(original, digits)):
            break
    return Recipe()


def _try(search: Search, number: int, text: str) -> bool:
    return _put(search, number, eval(text, {"torch": torch}))


def _put(search: Search, number: int, value: torch.Tensor) -> bool:
    tensors = list(search.case.tensors)
    tensors[number] = value
    return search.take(search.case.with_tensors(tensors))


def _call(function: str, tensor: torch.Tensor, *more: str) -> str:
    dtype = named(tensor.dtype)
    kind = [] if dtype == "float32" else [f"dtype=torch.{dtype}"]
    if function == "torch.full":
        kind = [f"dtype=torch.{dtype}"] if dtype not in ("float32", "int64", "bool") else []
    shape = ", ".join(map(str, tensor.shape)) or "()"
    if function == "torch.full":
        shape = str(tuple(tensor.shape))
    return f"{function}({', '.join([shape, *more, *kind])})"


def _constants(tensor: torch.Tensor) -> Iterator[str]:
    yield _call("torch.ones", tensor)
    yield _call("torch.zeros", tensor)
    if tensor.is_floating_point():
        ends = _ends(tensor)
        for digits in (1, 2):
            for end in sorted(ends, key=abs, reverse=True):
                yield _call("torch.full", tensor, written(_to_digits(end, digits)))
        for special in (-math.inf, math.inf):
            if bool((tensor == special).all()):
                yield _call("torch.full", tensor, written(special))
    elif tensor.dtype is not torch.bool and not tensor.is_complex():
        kind = "" if tensor.dtype is torch.int64 else f", dtype=torch.{named(tensor.dtype)}"
        shaped = "" if tensor.dim() == 1 else f".reshape({tuple(tensor.shape)})"
        yield f"torch.arange({tensor.numel()}{kind}){shaped}"


def _random(tensor: torch.Tensor) -> Iterator[str]:
    if not tensor.is_floating_point() or tensor.element_size() < 2 or not _ends(tensor):
        return
    low, high = (_to_digits(end, 2) for end in _ends(tensor))
    if low == high:
        yield _call("torch.full", tensor, written(low))
        return
    for seed in range(SEEDS):
        drawn = f"generator=torch.manual_seed({seed})"
        yield _call("torch.randn", tensor, drawn)
        spread = written(_to_digits(high - low, 2))
        start = "" if low == 0 else f" + {written(low)}" if low > 0 else f" - {written(-low)}"
        yield f"{_call('torch.rand', tensor, drawn)} * {spread}{start}"


def _ends(tensor: torch.Tensor) -> list[float]:
    finite = tensor.double()[torch.isfinite(tensor.double())]
    return [float(finite.min()), float(finite.max())] if finite.numel() else []


def _round_each(search: Search, number: int) -> None:
    """Greedily, value by value."""
    for place in range(search.case.tensors[number].numel()):
        tensor = search.case.tensors[number]
        value = tensor.flatten()[place].item()
        if isinstance(value, (bool, complex)) or not math.isfinite(value):
            continue
        for simpler in _simpler(value, is_float=tensor.is_floating_point()):
            changed = tensor.flatten().clone()
            changed[place] = simpler
            if _put(search, number, changed.reshape(tensor.shape)):
                break


def _simpler(value: float, *, is_float: bool) -> list[float]:
    if value in (0, 1, -1):
        return []
    if not is_float:
        return [0, 1]
    candidates = [math.copysign(1.0, value), 0.0, float(round(value))]
    candidates += [_to_digits(value, digits) for digits in range(1, ROUND + 1)]
    return [c for c in dict.fromkeys(candidates) if c != value]


def _to_digits(value: float, digits: int) -> float:
    return float(f"{value:.{digits - 1}e}")


def _rounded(tensor: torch.Tensor, digits: int) -> torch.Tensor:
    values = [_to_digits(v, digits) for v in tensor.flatten().tolist()]
    return torch.tensor(values, dtype=tensor.dtype).reshape(tensor.shape)


def _is_nobodys(tensor: torch.Tensor) -> bool:
    """Whether only round numbers are left, which tell nothing of the program's data."""
    if tensor.dtype is torch.bool or tensor.numel() == 0:
        return True
    if not tensor.is_floating_point():
        return not tensor.is_complex() and bool(((tensor >= 0) & (tensor <= 1)).all())
    exact = tensor.double().flatten().tolist()
    return all(not math.isfinite(v) or _is_round(v, tensor.dtype) for v in exact)


def _is_round(value: float, dtype: torch.dtype) -> bool:
    short = _to_digits(value, ROUND)
    return value == torch.tensor(short, dtype=dtype).double().item()


def written(value: float) -> str:
    """A number as it is typed."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


def shortest(value: float, dtype: torch.dtype) -> str:
    """The fewest digits that give this number in that type."""
    if not math.isfinite(value):
        return written(value)
    for digits in range(1, 18):
        short = _to_digits(value, digits)
        if torch.tensor(short, dtype=dtype).double().item() == value:
            return repr(short)
    return repr(value)

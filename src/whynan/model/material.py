"""What repeats an operation by itself: the call as torch got it, and the tensors that it was given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

BadKind = Literal["nan", "inf", "-inf", "raised"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A tensor with its values."""

    shape: tuple[int, ...]
    dtype: str
    stride: tuple[int, ...] = ()
    device: str = "cpu"
    data: str = ""  # its bytes in order, packed; without any, only the shape counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One operation. Its arguments are JSON: a list and a mapping, with {"tensor": 0} for the first
    of the tensors and {"result": [0, 1]} for the second result of the first call."""

    op: str  # "aten.log.default"
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """A chain of calls, nearly always of one, whose last result was bad."""

    calls: tuple[Call, ...]
    tensors: tuple[Held, ...]
    kind: BadKind
    output: int = 0  # which result of the last call; in a backward pass it does not matter
    # In a backward pass, by the number of the result: the gradient that came back to it.
    incoming: Mapping[int, int] = field(default_factory=dict)
    backward: bool = False
    reached: tuple[int, ...] | None = None  # the shape of the bad gradient
    message: str | None = None  # of the exception that it raised
    full_shapes: tuple[tuple[int, ...], ...] = ()  # of the tensors, where only a part is held
    settings: tuple[str, ...] = ()  # statements that put torch into the state it was in
    versions: Mapping[str, str] = field(default_factory=dict)

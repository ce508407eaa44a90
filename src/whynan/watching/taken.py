"""What the program takes out of its tensors, without a recording: values read, saved, returned."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import torch

from whynan.harm.ledger import Sign
from whynan.seam.sites import capture
from whynan.seam.stats import is_only_below
from whynan.seam.tensors import bad_values, saved_tensors, tensors_in

Place = tuple[CodeType, int]
IsWritten = Callable[[torch.Tensor], bool]  # by the program itself, which means it


class Taken:
    """Looks at it."""

    def __init__(self) -> None:
        self.meant: set[Place] = set()  # where an infinity was read that the program wrote

    def read(
        self, tensor: torch.Tensor, value: Any, frame: FrameType, step: int, is_written: IsWritten
    ) -> Sign | None:
        bad = _bad_read(tensor, value)
        if bad is None:
            return None
        if not math.isnan(bad) and (place_of(frame) in self.meant or is_written(tensor)):
            return None
        return Sign(
            sink="observed", subject="value read out", step=step, value=bad, proof=capture(frame)
        )

    def saved(self, obj: Any, frame: FrameType, step: int) -> Sign | None:
        found = map(bad_values, saved_tensors(obj))
        if any(bool(values.isnan().any()) for values in found if values is not None):
            return Sign(
                sink="observed", subject="saved tensor", step=step, value=math.nan,
                proof=capture(frame),
            )  # fmt: skip
        return None

    def returned(self, module: Any, output: Any, step: int) -> Sign | None:
        """By an outermost module, while no gradient was asked for."""
        subject = f"output of {type(module).__name__}"
        for values in map(bad_values, tensors_in(output)):
            if values is not None and not is_only_below(values):
                return Sign(sink="output", subject=subject, step=step, value=_worst(values))
        return None


def place_of(frame: FrameType) -> Place:
    """One instruction of the program."""
    return frame.f_code, frame.f_lasti


def _bad_read(tensor: Any, value: Any) -> float | None:
    """What is non-finite in a value that was read out of a tensor."""
    if isinstance(value, float):
        return value if value - value != 0 else None
    if isinstance(value, str) and "nan" not in value and "inf" not in value:
        return None
    values = None if isinstance(value, (bool, int)) else bad_values(tensor)
    return None if values is None else _worst(values)


def _worst(values: torch.Tensor) -> float:
    return math.nan if bool(values.isnan().any()) else math.inf

"""The same operation from the same operands, computed in other ways, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# Not finite by any way, or finite in a wider type only: the operands explain it. `kernel`: another
# implementation of the same precision is finite, and right. `unstable`: finite when run once more.
# `setting`: the same kernel is finite without a setting that lets it compute less exactly.
# `untried`: nobody was asked, for a reason that is told.
Judgement = Literal["mathematics", "precision", "kernel", "setting", "unstable", "untried"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """What one implementation made of the operands."""

    how: str
    dtype: str
    device: str
    nonfinite: int  # of its values, where the kernel's are not finite
    value: float | None = None  # at the witness
    is_setting: bool = False  # the same kernel, with a setting of the program's taken back
    apart: float | None = None  # from float64, relative to the largest value; None: not finite


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinions:
    """All that were asked for, and the judgement."""

    judgement: Judgement
    kernel: str  # the operator
    device: str
    bad: int  # values of the kernel's that are not finite
    asked: tuple[Opinion, ...] = ()
    why: str = ""  # nobody was asked
    processor: str = ""  # for which instructions torch has chosen its kernels, on a CPU

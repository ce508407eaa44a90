"""One operation as it was recorded, before anything about it is explained."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch

from whynan.model import Material, OpRecord
from whynan.record.schema import OpInfo, takes_numbers
from whynan.record.storages import Entry, Ref
from whynan.seam.sites import Frames, site_of
from whynan.source.meant import is_assigned
from whynan.source.positions import called_at

NUMBERS = frozenset({bool, int, float, type(None)})


class Record:
    """One operation, with references to what it read and wrote."""

    index: int
    info: OpInfo
    args: list[Any]  # as given, with a Ref for each tensor
    kwargs: Mapping[str, Any] = MappingProxyType({})
    outs: list[Ref]
    frames: Frames | None
    module: Any  # (outermost module, innermost module)
    step: int
    thread: int
    in_data = False  # inside a DataLoader
    in_optimizer = False
    setup = False  # before the first forward pass
    reads_grad = False  # an operand is a leaf's gradient or comes from one
    tainted_in: list[Ref] | None = None  # operands that hold a non-finite value
    surely_finite = False  # every operand was finite, and the operation makes nothing else of them
    node: str | None = None  # the autograd node being evaluated
    derived = False  # part of torch's own derivative formula
    differentiates: int | None = None  # the operation whose derivative that is
    bad: tuple[int, ...] = ()  # which outputs are non-finite
    before: dict[int, Any] | None = None  # operands that the operation overwrites
    kept: tuple[Any, ...] = ()  # storages kept alive for the explanation
    raised: BaseException | None = None
    frozen: OpRecord | None = None  # kept when the result outlives its operands
    materials: tuple[Material, ...] | None = None  # the same, for repeating it


class Origin:
    """Where an autograd node was made: what its backward operations are attributed to."""

    __slots__ = ("frames", "index", "module")

    def __init__(self, frames: Frames | None, module: Any, index: int | None = None) -> None:
        self.frames = frames
        self.module = module
        self.index = index  # of the operation; a view has none


# Arguments that may be infinite without any value being so: the order of a norm, a bound.
SETTINGS = frozenset(
    {"ord", "p", "norm_type", "min", "max", "posinf", "neginf", "nan", "start", "end", "step",
     "padding_value", "threshold", "eps"}
)  # fmt: skip


def nonfinite_scalars(record: Record) -> list[float]:
    """Infinities and NaNs that the program gave as plain numbers."""
    names = record.info.arg_names
    pairs = [(names[i], a) for i, a in enumerate(record.args)] + list(record.kwargs.items())
    return [a for name, a in pairs if isinstance(a, float) and a - a != 0 and name not in SETTINGS]


def writes_literal(record: Record) -> bool:
    """Whether the operation only writes a non-finite number that the program named."""
    return "fills" in record.info.row.does and bool(nonfinite_scalars(record))


def comes_in(record: Record) -> bool:
    """Whether a value of the program's becomes torch's here. torch before 2.15 makes a tensor of the
    number in `x[0] = number`, which then comes in; a newer one fills with it."""
    if record.info.entry:
        return True
    return (
        writes_literal(record) and record.frames is not None and is_assigned(site_of(record.frames))
    )


def is_torchs_own(record: Record) -> bool:
    """Whether a number that the operation was given cannot be the program's: it called an operator
    that takes none, and torch put this one in. So `logdet` marks a negative determinant by NaN."""
    if record.frames is None or record.frames.inside is not None:
        return False
    called = called_at(site_of(record.frames))
    return called is not None and takes_numbers(called) is False


def inside_of(record: Record) -> str | None:
    """The library function that the user called: `torch.nn.functional.cross_entropy`."""
    if record.frames is None or record.frames.inside is None:
        return None
    return record.frames.inside.co_qualname


def flat(out: Any) -> list[torch.Tensor]:
    """The tensors in what an operation returned or wrote to."""
    if isinstance(out, torch.Tensor):
        return [out]
    return [t for item in out for t in flat(item)] if isinstance(out, (list, tuple)) else []


def record_refs(record: Record) -> list[Ref]:
    """Every tensor the operation read, in the order of its arguments."""
    refs = []
    for arg in (*record.args, *record.kwargs.values()):
        if isinstance(arg, Ref):
            refs.append(arg)
        elif isinstance(arg, list):
            refs += [item for item in arg if isinstance(item, Ref)]
    return refs


def holds_tensors(arg: Any) -> bool:
    return any(type(item) not in NUMBERS and isinstance(item, torch.Tensor) for item in arg)


def is_alias(entry: Entry, record: Record) -> bool:
    """Whether the operation read something of that storage."""
    return any(ref.entry is entry for ref in record_refs(record))

"""Which operand explains a value, and which element of it."""

from __future__ import annotations

import cmath

import torch

from whynan.model import Operand, OpRecord
from whynan.ops.table import row, that
from whynan.record.reads import Read, value_after, value_before
from whynan.record.records import Record
from whynan.record.storages import Index
from whynan.seam.devices import double
from whynan.seam.stats import first_nonfinite, index_of

VANISHING = 1e-30  # of a product this small, the smaller factor is the reason
PICKS, SELECTS = that("picks"), that("selects")


def deciding(maker: OpRecord, operands: list[tuple[Read, Operand]]) -> tuple[Read, Operand] | None:
    """Which operand explains the maker's value; None where the explanation ends."""
    known = [(r, o) for r, o in operands if o.value is not None and o.stats is not None]
    if not known or (maker.name == "sub" and maker.value == 0 and not _takes_nothing_off(maker)):
        return None
    if maker.name in PICKS:  # the value, not its position; and only if it is the same element
        return known[0] if known[0][1].value == maker.value else None
    known_as = row(maker.name)
    if maker.value == 0 and (maker.name in ("mul", "div", "pow") or known_as.reads == "cross"):
        zero = [pair for pair in known if pair[1].value == 0]
        return zero[0] if zero else known[0]
    vanishing = maker.name == "mul" and abs(maker.value or 1.0) < VANISHING
    if vanishing or (maker.value == 0 and known_as.reads == "product"):
        return min(known, key=lambda pair: abs(pair[1].value or 0.0))
    return max(known, key=lambda pair: abs(pair[1].value or 0.0))


def _takes_nothing_off(maker: OpRecord) -> bool:
    """`x - 0`, of an x that is 0, or 0 less 0: not a difference of two equal values."""
    values = [o.value for o in maker.inputs]
    return values == [0, 0] or (maker.scalar("other") == 0 and values == [0])


def elements(record: Record, k: int, index: Index | None, found: list[Read]) -> list[Index | None]:
    """Of each operand, the element that decides: in a softmax its own logit, of a product of rows
    the same term of each."""
    together: dict[int, Index] = {}
    if index is not None and record.info.reads in ("product", "elementwise"):
        together = _term(record, found)
    elif index is not None and record.info.base in SELECTS and len(found) == 1:
        together = _equal_one(record, found[0], k, index)
    return [_element(record, read, index, together.get(i)) for i, read in enumerate(found)]


def extreme(part: torch.Tensor, read: Read) -> Index | None:
    """The element of a slice that decides: the first non-finite one, else the largest."""
    if part.numel() == 0:
        return None
    inner = first_nonfinite(part)
    if inner is None:
        flat = part.reshape(-1)
        flat = flat.abs() if flat.dtype != torch.bool else flat.to(torch.uint8)
        inner = index_of(int(flat.argmax()), part.shape)
    return read.within(inner)


def _element(record: Record, read: Read, own: Index | None, chosen: Index | None) -> Index | None:
    tensor = value_before(record, read) if read.element is None else None
    if tensor is None:
        return read.element
    keeps_place = record.info.reads in ("row", "prefix") and len(own or ()) == tensor.dim()
    index = chosen or (own if keeps_place else extreme(tensor[read.selection], read))
    if not read.known and index is not None and cmath.isfinite(tensor[index].item()):
        return None  # it may have nothing to do with the witness
    return index


def _term(record: Record, found: list[Read]) -> dict[int, Index]:
    """Of a sum of products or losses, the term that decides: a non-finite one, else the largest."""
    sums = [(i, r) for i, r in enumerate(found) if r.element is None and r.known]
    values = [value_before(record, r) for _, r in sums]
    if len(sums) != 2 or any(v is None for v in values):
        return {}
    a, b = (v[r.selection] for v, (_, r) in zip(values, sums, strict=True) if v is not None)
    if a.shape != b.shape or not a.numel():
        return {}
    shape, a, b = a.shape, double(a.reshape(-1)), double(b.reshape(-1))
    sizes = (a - b).abs() if record.info.reads == "elementwise" else a.abs() * b.abs()
    if not bool(sizes.any()):  # a 0 times something says more than 0 times 0
        sizes = a.abs() + b.abs()
    # 0 times an infinity is NaN by itself, a finite number times it only together with others.
    bad = ~(torch.isfinite(a) & torch.isfinite(b))
    alone = torch.isnan(a * b).to(torch.float64) + bad.to(torch.float64)
    at = (alone if bool(bad.any()) else sizes).argmax()
    inner = [int(i) for i in torch.unravel_index(at.cpu(), shape)]
    return {i: r.within(inner) for i, r in sums}


def _equal_one(record: Record, read: Read, k: int, index: Index) -> dict[int, Index]:
    """Of a largest or smallest value, the element that it is."""
    values, out = value_before(record, read), value_after(record, k)
    if values is None or out is None or read.element is not None:
        return {}
    same = (values[read.selection] == out[index]).nonzero()
    return {0: read.within([int(i) for i in same[0]])} if len(same) else {}

"""Whether a non-finite value was computed, is meant, or was never written at all."""

from __future__ import annotations

import cmath
import math

from whynan.record.ancestry import Node, path_between
from whynan.record.reads import value_after
from whynan.record.records import Record, comes_in, is_torchs_own, nonfinite_scalars, record_refs
from whynan.seam.sites import site_of
from whynan.seam.stats import first_nonfinite
from whynan.source.meant import LITERAL, names_nonfinite


def judge(node: Node, *, trains: bool) -> None:
    """Computed, intended or uninitialised, given the verdict on what it came from."""
    record = node.record
    if record is None:
        if not _is_a_mask(node):
            node.status, node.origin = "computed", node
        return
    if record.info.allocates:
        node.status = "uninitialised"
        return
    if comes_in(record):
        meant = _is_literal_call(record)
        # `scores[0] = -inf` is a mask; inf may be bad data that is trained with.
        if not meant and (not trains or value_of(node) == -math.inf):
            meant = is_named(record) or _is_a_mask(node)
        _literal(node, meant=meant)
        return
    computed = [p for p in node.parents if p.status == "computed"]
    if computed:
        origins = [p.origin for p in computed if p.origin is not None]
        if all(_is_brought(o) for o in origins) and _is_put(record) and _is_a_mask(node):
            return  # and stays one, whatever is added to it
        node.status = "computed"
        # Where the element is known as well, that says more.
        node.origin = min(origins, key=lambda n: n.rank)
        return
    if any(p.status == "uninitialised" for p in node.parents):
        node.status, node.origin = "computed", node
        return
    if not node.parents:
        written = nonfinite_scalars(record)
        if written and "fills" in record.info.row.does:
            node.value = written[0]
            if is_torchs_own(record):  # what selects it is the origin, if that is another one
                if record_refs(record):
                    node.status, node.origin = "computed", node
                return
            _literal(node, meant=True)
            return
        # No update is meant to be infinite: that is a learning rate, or a decay times one.
        if not written or record.in_optimizer:
            node.status, node.origin = "computed", node
            return
    value = value_of(node)
    if value is None or cmath.isnan(value):  # an intended infinity was turned into NaN here
        node.status, node.origin = "computed", node


def only_carried(start: Node, origin: Node) -> bool:
    """An infinity that came in from a file or an array and was only copied since; or a NaN
    that the program names where it makes it: it reads back its own marker."""
    record, value = origin.record, value_of(start)
    if value is None or (record is not None and not comes_in(record) and not _marks(record)):
        return False
    if cmath.isnan(value) and not (record is not None and (_marks(record) or is_named(record))):
        return False
    passed = [n.record for n in path_between(start, origin) if n is not origin]
    return all(r is None or comes_in(r) or _hands_on(r) for r in passed)


def _hands_on(record: Record) -> bool:
    """What it gives back stood in one of its operands, or was written by it."""
    row = record.info.row
    return not row.does.isdisjoint(("copies", "fills")) or row.reads in ("where", "put", "join")


def _is_put(record: Record) -> bool:
    return record.info.row.reads in ("put", "where", "join")


def _is_brought(origin: Node) -> bool:
    return origin.record is None or comes_in(origin.record)


def _is_a_mask(node: Node) -> bool:
    """What is added to scores to rule some of them out, from wherever it came: 0 and -inf, and
    nothing else."""
    if node.value is not None and node.value != -math.inf:
        return False
    tensor = node.ref.tensor()
    if tensor is None:  # what was noted of it while it was there
        frozen = node.record.frozen if node.record is not None else None
        outputs = frozen.outputs if frozen is not None else ()
        stats = outputs[node.k].stats if node.k < len(outputs) else None
        return stats is not None and 0 < stats.zeros == stats.count - stats.neginf
    zero = tensor == 0
    return bool(zero.any()) and bool((zero | (tensor == -math.inf)).all())


def _marks(record: Record) -> bool:
    """Whether NaN is put at some places, as for classes that do not occur."""
    return any(map(cmath.isnan, nonfinite_scalars(record))) and not is_torchs_own(record)


def value_of(node: Node) -> float | complex | None:
    """The value itself, looked up where it was not needed before."""
    if node.value is None and node.record is not None:
        tensor = value_after(node.record, node.k)
        if tensor is not None:
            index = node.index if node.index is not None else first_nonfinite(tensor)
            if index is not None:
                node.value = tensor[index].item()
    return node.value


def is_named(record: Record) -> bool:
    """Whether the value stands in the source where it comes in, itself or by a name for it."""
    return record.frames is not None and names_nonfinite(site_of(record.frames))


def _literal(node: Node, *, meant: bool) -> None:
    value = value_of(node)
    if not meant or value is None or cmath.isnan(value):
        node.status, node.origin = "computed", node


def _is_literal_call(record: Record) -> bool:
    """`torch.tensor(float("inf"))` is meant; `torch.from_numpy(table)` is data."""
    if record.frames is None:
        return False
    site = site_of(record.frames)
    return bool(LITERAL.search(site.expression or site.source))

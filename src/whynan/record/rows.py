"""Which sample of the batch an element belongs to, as the recorded operations tell it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product

import torch

from whynan.ops.table import kernel
from whynan.record.ancestry import Node
from whynan.record.contributions import argument, bag_of
from whynan.record.reads import Read, Selection
from whynan.record.records import Record
from whynan.record.relations import reads
from whynan.record.storages import Index, Ref

NOBODYS = -1  # no part of the batch leads here: a weight, a constant, a random number
MANYS = -2  # several samples, or it is not known whose
MAX_WORK = 30_000  # elements that are followed for one answer
FEW = 24  # elements that are asked one by one
ALL = slice(None)
TORCHS = ("aten", "prims", "higher_order")  # beyond them, people keep to the same

Element = tuple[Ref, Index]
Key = tuple[int, int, Index]


def samples_of(
    record: Record, made: torch.Tensor, size: int, locate: Callable[[Ref, Index, int], Node],
    items: Sequence[int] | None = None,
) -> list[int] | None:  # fmt: skip
    """The rows of the batch that the bad elements of a result belong to; None: not known. With
    `items`, those that the rows belong to, as the nodes of a graph do."""
    bad = (~torch.isfinite(made)).nonzero()
    places: list[Index] = [tuple(map(int, place)) for place in bad[: FEW + 1].tolist()]
    if not places:
        return None
    walk = _Walk(size, locate, items)

    def owner(place: Index) -> int:
        return walk.owner(record, 0, place)

    if len(places) <= FEW:
        rows = [owner(place) for place in places]
    else:
        axis = _axis(places[0], tuple(made.shape), owner)
        rows = [MANYS] if axis is None else _along(bad, axis, made.shape[axis], size, owner)
    known = min(rows) >= 0 and walk.work < MAX_WORK
    return sorted(set(rows)) if known else None


def _axis(place: Index, shape: Index, owner: Callable[[Index], int]) -> int | None:
    """The one dimension along which the owner changes."""
    own = owner(place)
    found = []
    for axis, length in enumerate(shape):
        ends = {0, length - 1} - {place[axis]}
        if any(owner((*place[:axis], end, *place[axis + 1 :])) != own for end in ends):
            found.append(axis)
    return found[0] if len(found) == 1 and own >= 0 else None


def _along(
    bad: torch.Tensor, axis: int, length: int, size: int, owner: Callable[[Index], int]
) -> list[int]:
    """The owners of all bad places: asked for each, or where there are many, for some of them,
    if the others follow by counting."""
    ordered = bad[bad[:, axis].argsort(stable=True)]
    _, counts = torch.unique_consecutive(ordered[:, axis], return_counts=True)
    firsts = ordered[counts.cumsum(0) - counts].tolist()
    step = max(1, len(firsts) // FEW)
    asked = firsts if step == 1 else [*firsts[::step], firsts[-1]]
    rows = [owner(tuple(place)) for place in asked]
    if step == 1 or length % size:
        return rows if step == 1 else [MANYS]
    each = length // size
    if all(place[axis] // each == row for place, row in zip(asked, rows, strict=True)):
        return [place[axis] // each for place in firsts]
    return [MANYS]


class _Walk:
    """Follows elements back to the model's input, each once."""

    def __init__(
        self, size: int, locate: Callable[[Ref, Index, int], Node], items: Sequence[int] | None
    ) -> None:
        self.size = size
        self.items = items
        self.locate = locate
        self.work = 0
        self._known: dict[Key, int] = {}

    def owner(self, record: Record, k: int, index: Index) -> int:
        """A row of the batch, or that there is none."""
        first = (record, k, index)
        pending = [first]
        groups: dict[Key, list[list[Element]]] = {}
        while pending:
            maker, out, place = pending[-1]
            key = (maker.index, out, place)
            if key in self._known:
                pending.pop()
                continue
            if key not in groups:
                self.work += _cost(maker)
                if self.work >= MAX_WORK:
                    return MANYS
                groups[key] = list(_groups(maker, out, place))
                found = (self._made(e, maker.index) for group in groups[key] for e in group)
                further = [m for m in found if isinstance(m, tuple)]
                missing = [m for m in further if (m[0].index, m[1], m[2]) not in self._known]
                if missing:
                    pending += missing
                    continue
            pending.pop()
            told = [[self._told(e, maker.index) for e in group] for group in groups.pop(key)]
            self._known[key] = _shared(told)
        return self._known[(record.index, k, index)]

    def _made(self, element: Element, before: int) -> tuple[Record, int, Index] | int:
        """The operation that made it; or whose it is, where the batch itself or nothing is found."""
        ref, index = element
        window = ref.entry.batch
        if window is not None and window.shape[:1] == (self.size,):
            place = window.index_at(ref.position(index))
            if place is not None:
                return place[0] if self.items is None else self.items[place[0]]
        node = self.locate(ref, index, before)
        if node.record is None or node.index is None:
            return NOBODYS if window is None and node.record is None else MANYS
        return node.record, node.k, node.index

    def _told(self, element: Element, before: int) -> int:
        made = self._made(element, before)
        if isinstance(made, int):
            return made
        return self._known.get((made[0].index, made[1], made[2]), MANYS)


def _cost(record: Record) -> int:
    """Where one element went is found by moving numbers for all of them."""
    moves = record.info.reads in ("move", "put")
    sizes = [math.prod(ref.shape) for ref in record.args[:1] if isinstance(ref, Ref)]
    return 1 + (sum(sizes) // 1000 if moves else 0)


def _together(owners: Iterable[int]) -> int:
    """Of values that are joined: theirs, if all who have a part in it are the same."""
    found = set(owners) - {NOBODYS}
    return found.pop() if len(found) == 1 else MANYS if found else NOBODYS


def _shared(groups: list[list[int]]) -> int:
    """Of operands that meet at one place: a sample's value less the mean of all is the sample's."""
    owner = _together(map(_together, groups))
    if owner != MANYS:
        return owner
    rows = {group[0] for group in groups if len(group) == 1 and group[0] >= 0}
    others = {_together(group) for group in groups} - {NOBODYS, MANYS}
    return rows.pop() if len(rows) == 1 and others <= rows else MANYS


def _groups(record: Record, k: int, index: Index) -> Iterator[list[Element]]:
    """What an element was made of, by operand; of a slice, its corners stand for it."""
    base = record.info.base
    if record.info.reads == "nothing":
        return
    if base == "lstm":
        yield from _recurrent(record, k, index)
        return
    if kernel(base)[0].name == "ctc_loss" and k == 0:
        yield from _of_ctc(record, index)
        return
    for read in reads(record, k, index):
        yield _corners(read.ref, _kept_apart(record, k, index, read) or read.selection)
    if record.info.reads == "lookup" or base == "index":
        yield _looked_up_by(record, index)
    elif record.info.reads == "bag" and k == 0:
        ids, bag = argument(record, "indices"), bag_of(record, index)
        yield [(ids, (place,)) for place in bag] if isinstance(ids, Ref) and bag else []


def _kept_apart(record: Record, k: int, index: Index, read: Read) -> Selection | None:
    """The part of an operand that belongs to the same place of the batch, where torch says so."""
    base, shape = record.info.base, read.ref.shape
    if k != 0 or not shape or not index or read.role in ("weight", "bias"):
        return None
    known = kernel(base)[0]
    if known.name == "batch_norm" and shape == record.outs[k].shape:
        return index  # its statistics are everybody's, its place is not
    is_open = not isinstance(read.selection[0], int)
    # Torch says that the first dimension is the batch's, and keeps its places apart.
    keeps = record.info.namespace not in TORCHS or "batchwise" in known.does
    if is_open and keeps and shape[0] == record.outs[k].shape[0]:
        return (index[0], *(ALL,) * (len(shape) - 1))
    return None


def _corners(ref: Ref, selection: Selection) -> list[Element]:
    """The first and the last place along each dimension that is taken whole, and the middle."""
    ends: list[tuple[int, ...]] = []
    for chosen, length in zip(selection, ref.shape, strict=True):
        if isinstance(chosen, int):
            ends.append((chosen,))
            continue
        first, last, _ = chosen.indices(length)
        if last <= first:
            return []
        ends.append((first,) if last - first == 1 else (first, last - 1))
    middle = tuple(sum(end) // len(end) for end in ends)
    return [(ref, place) for place in dict.fromkeys((*product(*ends), middle))]


def _recurrent(record: Record, k: int, index: Index) -> Iterator[list[Element]]:
    """An LSTM joins the times of one sequence."""
    x, first = record.args[0], argument(record, "batch_first")
    if not isinstance(x, Ref) or len(x.shape) != 3 or len(index) != 3:
        whole = [_corners(x, (ALL,) * len(x.shape))] if isinstance(x, Ref) else []
        yield from whole
        return
    sequence = index[0] if first and k == 0 else index[1]
    yield _corners(x, (sequence, ALL, ALL) if first else (ALL, sequence, ALL))


def _of_ctc(record: Record, index: Index) -> Iterator[list[Element]]:
    """The alignments of one sample, whose frames stand first; without a batch, of all there is."""
    sample = index[0] if len(index) == 1 else index[1]
    frames = argument(record, "log_probs")
    if isinstance(frames, Ref) and len(frames.shape) == 3:
        yield _corners(frames, (ALL, sample, ALL))


def _looked_up_by(record: Record, index: Index) -> list[Element]:
    """The number that chose this element from a table."""
    base, start = record.info.base, 0
    ref = argument(record, "indices" if base in ("embedding", "index") else "index")
    if base == "index":
        given = list(ref) if isinstance(ref, list) else []
        at = [i for i, item in enumerate(given) if isinstance(item, Ref)]
        start = at[0] if len(at) == 1 and given[at[0]].dtype is not torch.bool else len(given)
        ref = given[start] if start < len(given) else None
    elif base == "index_select":
        start = (argument(record, "dim") or 0) % max(len(index), 1)
    if not isinstance(ref, Ref):
        return []
    chosen = index[start : start + len(ref.shape)]
    fits = len(chosen) == len(ref.shape) and all(map(int.__lt__, chosen, ref.shape))
    return [(ref, chosen)] if fits else []

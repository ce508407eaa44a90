"""Of a batch that the program took from a table itself: which rows of it these were."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from whynan.record.ancestry import Node
from whynan.record.reads import value_before
from whynan.record.records import Record
from whynan.record.relations import reads
from whynan.record.storages import Index, Ref

MOST = 400  # elements that are followed
CHOOSING = ("index", "index_select")


class Row(NamedTuple):
    """One row of a table, by the place in the batch that it was put at."""

    number: int
    length: int  # of the table


def row_of(record: Record, k: int, index: Index, batch_row: int, size: int, locate: Callable[[Ref, Index, int], Node]) -> Row | None:  # fmt: skip
    """The row that an element was taken from, with all others of its batch, if there is one."""
    pending, seen, found = [(record, k, index)], set[tuple[int, Index]](), set[Row]()
    while pending:
        maker, out, place = pending.pop()
        if len(seen) > MOST or (maker.index, place) in seen:
            continue
        seen.add((maker.index, place))
        chosen = _chosen(maker, place, size)
        if chosen is not None:
            if place[0] == batch_row:
                found.add(chosen)
            continue
        for read in reads(maker, out, place):
            if read.element is not None and read.known:
                node = locate(read.ref, read.element, maker.index)
                if node.record is not None and node.index is not None:
                    pending.append((node.record, node.k, node.index))
    return found.pop() if len(found) == 1 else None


def _chosen(record: Record, place: Index, size: int) -> Row | None:
    """`X[rows]`, of which the first dimension is the batch's."""
    if record.info.base not in CHOOSING or not place or record.outs[0].shape[:1] != (size,):
        return None
    for read in reads(record, 0, place):
        table = record.args[0]
        element = read.element
        if isinstance(table, Ref) and read.ref is table and element and table.shape[0] > size:
            tensor = value_before(record, read)
            if tensor is None or not isinstance(tensor, torch.Tensor):
                return None
            return Row(element[0], table.shape[0])
    return None

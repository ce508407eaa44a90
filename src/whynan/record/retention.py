"""What is kept and for how long: nothing of a healthy step, but what explains a living NaN."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whynan.record.local import Local
from whynan.record.records import Record, record_refs, writes_literal
from whynan.record.storages import Entry

if TYPE_CHECKING:
    from whynan.record.tracer import Tracer

MAX_RECORDS = 20_000
MAX_FROZEN = 8
SWEEP_SLACK = 128
UPSTREAM = 12  # finite operations kept before a non-finite one


def forget(tracer: Tracer, *, before: int) -> None:
    """Drop this thread's records older than `before`, but for those that explain a non-finite
    value that is still alive."""
    local = tracer.local
    for entry in local.holder.let_go():
        tracer.drop(entry)
    _freeze_what_may_outlive(tracer, before)
    while local.kept and local.kept[0][0].index < before:
        let_go_oldest(local)  # else whynan itself would keep non-finite values alive
    wanted: set[int] = set()
    if tracer.met_bad:
        alive = [e for e in list(tracer.entries.values()) if e.tainted and not e.expired()]
        tracer.met_bad = bool(alive)
        wanted = _explaining(tracer, alive)
    records = tracer.records
    if before == tracer.next_index and not wanted and len(tracer.threads) == 1:
        _drop_all(records)
    else:
        _drop(records, before, local.thread, wanted)
    if len(tracer.entries) > tracer.sweep_at:
        _sweep(tracer)
    if len(local.made) > MAX_RECORDS:
        for number in list(local.made)[: len(local.made) // 2]:
            del local.made[number]


def _drop_all(records: dict[int, Record]) -> None:
    for index, record in list(records.items()):  # a first other thread may be adding its own
        del records[index]
        for ref in record.outs:
            ref[0].writers.clear()


def _drop(records: dict[int, Record], before: int, thread: int, wanted: set[int]) -> None:
    rewritten: set[Entry] = set()
    # In place: another thread may be adding its records meanwhile.
    for index, record in list(records.items()):
        if index < before and record.thread == thread and index not in wanted:
            del records[index]
            for ref in record.outs:
                writers = ref[0].writers
                if len(writers) == 1 and writers[0][0] == index:
                    writers.clear()
                else:
                    rewritten.add(ref[0])
    for entry in rewritten:
        entry.writers = [w for w in entry.writers if w[0] in records]


def _sweep(tracer: Tracer) -> None:
    """Drop what is known about storages that are gone: seldom, for it asks each of them."""
    for entry in list(tracer.entries.values()):
        if entry.writers:
            entry.writers = [w for w in entry.writers if w[0] in tracer.records]
        if not entry.writers and entry.expired():
            tracer.drop(entry)
    tracer.sweep_at = 2 * len(tracer.entries) + SWEEP_SLACK
    leaves = tracer.local.leaves
    for key in [k for k, weak in leaves.items() if weak() is None]:
        del leaves[key]


def let_go_oldest(local: Local) -> None:
    """Release the storages that the oldest non-finite record keeps."""
    record, size = local.kept.popleft()
    record.kept = ()
    local.kept_bytes -= size


def _freeze_what_may_outlive(tracer: Tracer, before: int) -> None:
    """A non-finite value made now may do harm many steps later: note its operands."""
    makers = [
        record
        for record, _ in tracer.local.kept
        if record.index < before
        and record.frozen is None
        and (record.info.entry or not record.tainted_in)
        and not writes_literal(record)
        and not all(record.outs[k].entry.expired() for k in record.bad)
    ]
    for record in makers[:MAX_FROZEN]:
        tracer.follower.outliving(record)


def _explaining(tracer: Tracer, roots: list[Entry]) -> set[int]:
    """The records that these storages came from: all non-finite ones, some before them."""
    wanted: set[int] = set()
    pending = [(i, 0) for entry in roots for i, _ in entry.writers]
    while pending:
        index, depth = pending.pop()
        record = tracer.records.get(index)
        if record is None or index in wanted or depth > UPSTREAM or len(wanted) > MAX_RECORDS // 4:
            continue
        wanted.add(index)
        for ref in record_refs(record):
            next_depth = 0 if ref.entry.tainted else depth + 1
            pending += [(i, next_depth) for i, _ in ref.entry.writers if i < index]
    return wanted

"""What is kept and for how long: nothing of a healthy step, but what explains a living NaN."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whynan.record.local import Local
from whynan.record.meeting import look_now
from whynan.record.records import Record, record_refs, writes_literal
from whynan.record.saving import copy_operands
from whynan.record.storages import Entry
from whynan.seam.devices import budget

if TYPE_CHECKING:
    from whynan.record.tracer import Tracer

KEEP_BYTES = 256 << 20
MAX_RECORDS = 120_000  # of one step: about 200 MB
MANY_RECORDS = 20_000  # a program that does not train goes on without a recorder after so many
MAX_FROZEN = 8
SWEEP_SLACK = 128
UPSTREAM = 12  # finite operations kept before a non-finite one


def suspect(tracer: Tracer, record: Record) -> None:
    """An output is non-finite: keep what explains it for as long as the budget allows."""
    for ref in record_refs(record):
        if ref[0].unseen and (seen := ref.tensor()) is not None:
            look_now(tracer, ref[0], seen)
            if ref[0].tainted:
                record.tainted_in = [*(record.tainted_in or ()), ref]
    tainted = record.tainted_in
    makes_it = not tainted and not record.info.entry and not writes_literal(record)
    if makes_it:
        copy_operands(record)
    for position in record.bad:
        entry = record.outs[position][0]
        entry.overflowed = makes_it or any(ref[0].overflowed for ref in tainted or ())
    # What comes in is often a temporary, of which the program itself keeps a copy only.
    refs = record.outs if record.info.entry else record_refs(record)
    kept = {ref[0]: ref[0].keep() for ref in refs}
    record.kept = tuple(s for s in kept.values() if s is not None)
    size = sum(s.nbytes() for s in record.kept)
    local = tracer.local
    local.kept.append((record, size))
    local.kept_bytes += size
    most = budget(record.kept[0].device, KEEP_BYTES) if record.kept else KEEP_BYTES
    while local.kept_bytes > most and len(local.kept) > 1:
        let_go_oldest(local)


def forget(tracer: Tracer, *, before: int) -> None:
    """Drop this thread's records older than `before`, but for those that explain a non-finite
    value that is still alive."""
    tracer.later.settle()
    local = tracer.local
    for entry in local.holder.let_go():
        _drop_entry(tracer, entry)
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
    tracer.room = len(records) + MANY_RECORDS
    local.forget_nodes(MAX_RECORDS)


def make_room(tracer: Tracer) -> None:
    """After many operations without an end of the step: the oldest go, where they are too many."""
    if len(tracer.records) > MAX_RECORDS:
        forget(tracer, before=tracer.next_index - MAX_RECORDS // 2)
    tracer.room = len(tracer.records) + MANY_RECORDS


def clear(tracer: Tracer) -> None:
    """Let go of everything."""
    tracer.local.holder.let_go()
    tracer.local.kept.clear()
    tracer.records = {}
    tracer.entries = {}


def _drop_entry(tracer: Tracer, entry: Entry) -> None:
    """Forget a storage that is gone. Its address may be another one's already."""
    if tracer.entries.get(entry.cdata) is entry:
        del tracer.entries[entry.cdata]


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
            for k in record.bad:
                record.outs[k][0].lost = True
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
            _drop_entry(tracer, entry)
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
    finite: list[tuple[int, int]] = []  # last: the way of the bad values must not have a gap
    while (pending or finite) and len(wanted) <= MAX_RECORDS // 2:
        index, depth = pending.pop() if pending else finite.pop()
        record = tracer.records.get(index)
        if record is None or index in wanted:
            continue
        wanted.add(index)
        for ref in record_refs(record):
            if ref.entry.tainted:
                pending += [(i, 0) for i, _ in ref.entry.writers if i < index]
            elif depth < UPSTREAM:
                finite += [(i, depth + 1) for i, _ in ref.entry.writers if i < index]
    return wanted

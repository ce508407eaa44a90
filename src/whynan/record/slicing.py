"""Walks back from a harmed sink to the operation that made the first non-finite value."""

from __future__ import annotations

from dataclasses import replace

import torch

from whynan.model import Evidence, Operand, OpRecord
from whynan.record.ancestry import Ancestry, Node, path_between
from whynan.record.by_definition import is_by_definition
from whynan.record.files import LoadedFiles
from whynan.record.freeze import Freezer, real
from whynan.record.harm import GRADIENT_OF, Harm
from whynan.record.judging import is_named, judge, only_carried, value_of
from whynan.record.materials import Materials
from whynan.record.modules import ModuleNames
from whynan.record.origins import Origins
from whynan.record.phase import is_after_backward
from whynan.record.records import Record, comes_in, writes_literal
from whynan.record.retention import MAX_RECORDS
from whynan.record.tracer import Tracer
from whynan.record.unseen import unseen
from whynan.record.upstream import Upstream
from whynan.seam.hush import hushed
from whynan.seam.private import has_storage
from whynan.seam.sites import site_of
from whynan.seam.stats import first_nonfinite, stats_of

FORGOTTEN = (
    f"where it began: this step has so many operations that only the last {MAX_RECORDS // 2:,} "
    "and those after them were kept"
)
TURN = 3  # operations of a derivative formula, from the value that it reads to its result


class Slicer:
    """Turns a `Harm` into `Evidence`, or into None when every infinity was meant."""

    def __init__(self, tracer: Tracer, names: ModuleNames) -> None:
        self.tracer = tracer
        self.ancestry = Ancestry(tracer)
        self.freezer = Freezer(tracer, names)
        self.upstream = Upstream(self.freezer, self.ancestry)
        self.origins = Origins(self.freezer, self.upstream)
        self.materials = Materials(tracer)
        self.files = LoadedFiles()

    def freeze(self, record: Record) -> None:
        """Note what explains it: it may do harm long after its operands are gone."""
        with torch.no_grad(), hushed():
            k = record.bad[0]
            record.frozen = self.origins.full(record, k, None)
            if self.materials.is_wanted:
                record.materials = self.materials.of(record, k, None, record.frozen.value)

    def evidence(self, harm: Harm) -> Evidence | None:
        """Walk back from the sink; all of it happens while the values are still there."""
        if harm.known is not None:
            return replace(
                harm.known,
                sink=harm.sink,
                subject=harm.subject,
                sink_site=site_of(harm.frames) if harm.frames else None,
                sink_value=None,
                effect=harm.effect,
                hyper=harm.hyper,
            )
        with torch.no_grad(), hushed():  # what is recomputed was already warned about
            starts = self.ancestry.starts(harm)
            if not starts:
                return self._raised(harm) if harm.sink == "exception" else None
            for node in self.ancestry.explore(starts):
                judge(node, trains=harm.matters)
            found = [(s.origin.rank, s, s.origin) for s in starts if s.origin is not None]
            if found:
                _, start, origin = min(found, key=lambda item: item[0])
                if not harm.matters and self._is_no_fault(start, origin):
                    return None
                if origin.record is None and origin.ref.entry.lost:
                    return self._forgotten(harm, start)
                return self._describe(harm, start, origin)
            # A parameter may hold -inf for good: a class that is ruled out. The loss tells.
            is_kept = harm.sink == "parameter"
            return self._intended(harm, starts[0]) if harm.matters and not is_kept else None

    def _is_no_fault(self, start: Node, origin: Node) -> bool:
        """Of what is shown: a marker that was read back, or an infinity that is the right answer."""
        if only_carried(start, origin):
            return True
        return is_by_definition(start, origin, self.upstream)

    def is_written(self, tensor: torch.Tensor) -> bool:
        """Whether what stands there is a number of the program's own, as far as is recorded."""
        entry = self.tracer.entry_of(tensor) if has_storage(tensor) else None
        record = self.tracer.records.get(entry.writers[-1][0]) if entry and entry.writers else None
        if record is None:
            return False
        return is_named(record) if comes_in(record) else writes_literal(record)

    def _intended(self, harm: Harm, start: Node) -> Evidence | None:
        """Every infinity was written on purpose. That is harm only where training stands on it."""
        node, meant = start, start
        while node.parents:
            fails = node.record.info.row.fails if node.record is not None else ()
            if "log_nonpositive" in fails:
                meant = node
            node = node.parents[0]
        if meant is start and start.record is not None and node.record is not None:
            meant = node
        return self._describe(harm, start, meant)

    def _stage(self, node: Node, *, in_full: bool) -> OpRecord:
        record = node.record
        if in_full and record is not None and record.derived:
            return self.origins.full(record, node.k, node.index, node.value)
        return self.freezer.light(node)

    def _describe(self, harm: Harm, start: Node, origin: Node) -> Evidence:
        path = path_between(start, origin)
        if origin.record is not None and origin.status == "computed" and not origin.parents:
            garbage = self.upstream.reader_of_garbage(origin.record, origin.k, origin.index)
            if garbage is not None and garbage[0] is not origin.record:
                record, k, index = garbage
                origin = Node(record, k, index, record.outs[k])
                origin.parents = [unwritten := Node(None, 0, None, record.outs[k])]
                unwritten.status = "uninitialised"
                path.insert(0, origin)
        frozen, kind = self.origins.origin(origin, [p.record for p in path])
        if kind == "entry" and frozen.inputs:
            frozen = replace(frozen, inputs=(self._loaded(frozen.inputs[0], origin, path),))
        # What a forward value meets on its way back tells what had dropped it.
        turn = TURN if path and path[0].record is not None and path[0].record.node is None else 0
        steps = [self._stage(n, in_full=i < turn) for i, n in enumerate(path[1:])]
        if harm.record is not None and harm.sink != "exception":  # it absorbed the value
            steps.append(self.freezer.light(Node(harm.record, 0, None, harm.record.outs[0])))
        if (
            harm.sink == "parameter"
            and not harm.is_buffer
            and is_after_backward(origin.record, self.tracer)
        ):
            frozen = replace(frozen, phase="optimizer")
        incomplete = None
        if any(n.index is None for n in path if n.record is not None):
            incomplete = "which elements led there: values on the way were no longer in memory"
        return Evidence(
            sink=harm.sink,
            subject=start.name or harm.subject,
            step=harm.step,
            origin=frozen,
            origin_kind=kind,
            path=tuple(steps),
            sink_site=site_of(harm.frames) if harm.frames else None,
            sink_value=real(value_of(start)),
            effect=harm.effect,
            message=harm.message,
            parameter=harm.parameter and (start.name or harm.parameter).removeprefix(GRADIENT_OF),
            hyper=harm.hyper,
            incomplete=incomplete,
            materials=self.materials.of(origin.record, origin.k, origin.index, value_of(origin)),
        )

    def _loaded(self, value: Operand, origin: Node, path: list[Node]) -> Operand:
        """What came in, with its file and, if it went into a model, its name and place there."""
        file = self.files.file_of(origin.ref.entry)
        owner = self.freezer.names.owner_of(origin.ref.entry) if origin.record is not None else None
        if owner is not None:  # it was taken over as it is
            kind, name, tensor = owner
            first = first_nonfinite(tensor.detach(), prefer_nan=False)
            loaded = replace(value, file=file, kept_as=f"{kind} {name}", first=first)
            if value.stats is not None and value.stats.nonfinite:
                return loaded
            return replace(loaded, stats=stats_of(tensor.detach()))  # else those of a file's bytes
        for node in path[1:]:
            if node.record is None or "copies" not in node.record.info.row.does:
                break
            held = self.freezer.names.name_of_storage(node.ref.entry)
            if held is not None:
                return replace(value, file=file, kept_as=" ".join(held), first=node.index)
        return replace(value, file=file)

    def _forgotten(self, harm: Harm, start: Node) -> Evidence:
        """The way back ends where nothing is kept any more: no origin is claimed."""
        return unseen(
            harm.sink, start.name or harm.subject, harm.step, value=real(value_of(start)),
            frames=harm.frames, why=FORGOTTEN,
        )  # fmt: skip

    def _raised(self, harm: Harm) -> Evidence | None:
        """An operation refused finite input (a singular matrix, a negative probability)."""
        record = harm.record
        if record is None:
            return None
        frozen = self.origins.full(record, 0, None)
        return Evidence(
            sink="exception",
            subject=harm.subject,
            step=harm.step,
            origin=frozen,
            origin_kind="raised",
            sink_site=site_of(harm.frames) if harm.frames else frozen.site,
            message=harm.message,
            materials=self.materials.of(record, 0, None, None),
        )

"""Records every operation of a traced block: the hot path, kept short and straight."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from types import CodeType
from typing import Any, Protocol

import torch

from whynan.errors import StopRun
from whynan.record.local import Local, PerThread
from whynan.record.records import Origin, Record, record_refs, writes_literal
from whynan.record.retention import MAX_RECORDS, forget, let_go_oldest
from whynan.record.schema import KNOWN, OpInfo, info_for, info_of
from whynan.record.storages import Entry, Ref
from whynan.seam.calls import Calls
from whynan.seam.members import run_in_parts, sequence_of
from whynan.seam.paths import CHECKPOINT
from whynan.seam.private import (
    ENGINE,
    address_of,
    current_node,
    dispatch_modes,
    is_zero_tensor,
    no_dispatch,
    pop_mode,
    push_mode,
    sequence_number,
    storage_id,
    tracing_state,
)
from whynan.seam.quiet import Quiet, pause, resume
from whynan.seam.reading import can_be_read, is_in_memory
from whynan.seam.sites import Frames, capture, passes_through
from whynan.seam.stats import has_nonfinite, look
from whynan.seam.versions import RecorderMode

NUMBERS = frozenset({bool, int, float, type(None)})
PLAIN_TYPES = ((), (torch.Tensor,))
_strided = torch.strided
_Parameter = torch.nn.Parameter
_new_ref = tuple.__new__
_grad_enabled = torch.is_grad_enabled

# An in-place operation destroys the operand that explains it. Small operands are always kept;
# large ones where the operation has a singular point, the type has little range, or the gradients
# of this step are large enough for an update to overflow.
SMALL_NUMEL = 1 << 12
INEXACT = frozenset(
    kind
    for kind in vars(torch).values()
    if isinstance(kind, torch.dtype) and (kind.is_floating_point or kind.is_complex)
)
MAX_FAILURES = 100
MAX_LEVELS = 8
MAX_NODES = 1024  # of operations that are recorded as one
HOLD_BYTES = 8 << 20  # more would keep the allocator from reusing warm memory
KEEP_BYTES = 256 << 20


class _Mode(RecorderMode):
    def __init__(self, tracer: Tracer) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch
        self.tracer = tracer

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        info = KNOWN.get(id(func)) or info_of(func)
        if info.composite:
            return self._in_parts(func, args, kwargs or {})
        if (info.makes_no_node or (info.view and not _grad_enabled())) and types in PLAIN_TYPES:
            return info.call(*args, **kwargs) if kwargs else info.call(*args)
        return self.tracer.dispatch(info, types, args, kwargs or {})

    def _in_parts(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Inference mode hands these over whole; autograd would have taken them apart."""
        push_mode(self)
        try:
            return run_in_parts(func, args, kwargs)
        finally:
            pop_mode()


class Follower(Protocol):
    """Who is told of what the recorded operations do."""

    def absorbed(self, record: Record) -> None: ...
    def shadowed(self, record: Record) -> None: ...
    def outliving(self, record: Record) -> None: ...
    def leaves_updated(self) -> None: ...
    def average_spoilt(self, parameters: Sequence[torch.Tensor]) -> None: ...
    def operations_are_many(self) -> None: ...
    def stepped_aside(self, error: BaseException) -> None: ...


class Tracer:
    """Appends one `Record` for each operation and keeps track of non-finite storages."""

    def __init__(
        self, calls: Calls, quiet: Quiet, follower: Follower, *, hold_bytes: int = HOLD_BYTES
    ) -> None:
        self.calls = calls
        self.quiet = quiet
        self._own = quiet.local
        self.follower = follower
        self.threads: set[int] = set()  # those that were ever seen
        self._per_thread = PerThread(hold_bytes, self.threads)
        self.entries: dict[int, Entry] = {}  # by the address of the storage
        self.records: dict[int, Record] = {}
        self.next_index = 0
        self.sweep_at = 0  # number of entries at which the dead among them are dropped
        self.step = 0
        self.active = False
        self.began = False  # the setup part of the program is over
        self.will_train = False  # there is an optimizer: what comes before the first pass is setup
        self.met_bad = False  # some storage is tainted; nothing to look for otherwise
        self.careful = False  # large gradients: this step may overflow, keep what explains it
        self.shadowing = False  # an absorbed overflow is being followed in float64
        self.uses_optimizer = False
        self.stopping = False  # another thread found harm and the run is to end
        self.broken: str | None = None
        self.failures = 0
        self.last_failure = ""
        self.last_raised: Record | None = None

    @property
    def local(self) -> Local:
        """What is known about the calling thread."""
        return self._per_thread.local

    def mode(self) -> RecorderMode:
        return _Mode(self)

    def entry_of(self, tensor: torch.Tensor) -> Entry | None:
        """What is known about a tensor's storage."""
        try:
            entry = self.entries.get(storage_id(tensor))
        except (NotImplementedError, RuntimeError):
            return None  # sparse, nested, handed out by torch.func
        return None if entry is None or entry.is_gone() else entry

    def drop(self, entry: Entry) -> None:
        """Forget a storage that is gone. Its address may be another one's already."""
        if self.entries.get(entry.cdata) is entry:
            del self.entries[entry.cdata]

    def clear(self) -> None:
        """Let go of everything."""
        self.local.holder.let_go()
        self.local.kept.clear()
        self.records = {}
        self.entries = {}

    # ---- hot path -------------------------------------------------------------------

    def dispatch(self, info: OpInfo, types: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        local = self._per_thread.local
        if not self.active or self._own.own:
            return info.call(*args, **kwargs)
        if self.stopping:
            raise StopRun
        if dispatch_modes() or tracing_state() is not None:
            return info.call(*args, **kwargs)  # fake tensors, make_fx, torch.jit.trace: not a run
        if types not in PLAIN_TYPES and any(
            getattr(t, "__torch_dispatch__", no_dispatch) not in (no_dispatch, _default_dispatch)
            for t in types
        ):
            return (
                NotImplemented  # a tensor subclass unpacks itself; its inner operations come here
            )
        try:
            if info.view:  # it writes nothing; its node needs a call site
                if _grad_enabled():
                    if not info.turns:
                        self._claim_view(local)
                    self._meet_viewed_leaf(args)
                return info.call(*args, **kwargs)
            if info.quiet is not None:
                info = info_for(info, args)
            record = self._begin(info, args, kwargs, local)
        except Exception as error:
            self._failed(error)
            return info.call(*args, **kwargs)
        try:
            out = info.call(*args, **kwargs)
        except Exception as error:
            record.raised = error
            record.outs = []
            self.records[record.index] = record
            self.last_raised = record
            raise
        try:
            self._end(record, info, args, kwargs, out, local)
        except Exception as error:
            self._failed(error)
        return out

    def may_pause(self) -> bool:
        """Whether operations of this thread are recorded now, and a few could be left out."""
        return (
            self.active
            and not (self._own.own or self.stopping or self.shadowing)
            and current_node() is None
            and tracing_state() is None
            and dispatch_modes() == 1  # else a mode of the program's would see it twice
        )

    def record_whole(self, info: OpInfo, args: Any, outs: Any, inside: CodeType) -> bool:
        """Record as one operation what ran while the recorder was off. False, and nothing is
        recorded, if an operand or a result is non-finite: then the parts have to be known."""
        local = self._per_thread.local
        self._own.own += 1
        mode = pause()
        try:
            if any(has_nonfinite(t.detach()) for t in outs):
                return False
            record = self._begin(info, args, {}, local, inside)
            if record.tainted_in:
                return False
            record.surely_finite = True
            self._end(record, info, args, {}, outs, local)
        except Exception as error:
            self._failed(error)
        finally:
            resume(mode)
            self._own.own -= 1
        return True

    def _begin(
        self,
        info: OpInfo,
        args: Any,
        kwargs: dict[str, Any],
        local: Local,
        inside: CodeType | None = None,
    ) -> Record:
        record = Record()
        record.index = self.next_index
        self.next_index += 1
        record.info = info
        record.step = self.step
        record.thread = local.thread
        grad_enabled = _grad_enabled()
        if local.data:
            record.in_data = True
        if local.optimizer is not None and not grad_enabled:
            # A frame that nobody called any longer: step() raised and is long over.
            record.in_optimizer = local.step_frame.f_back is not None
        node = current_node()
        if node is None:
            frames = (record.in_optimizer and local.optimizer_frames) or capture(sys._getframe(3))
            record.module = self.calls.running()
            if inside is not None and frames is not None:
                frames = frames._replace(inside=inside)
        else:
            frames = self._begin_backward(record, node, local)
        record.frames = frames
        if grad_enabled:
            levels = MAX_LEVELS if inside is None else MAX_NODES
            self._claim_nodes(Origin(frames, record.module), local, levels)
        sure = info.faithful
        tainted: list[Ref] | None = None
        requires_grad = False
        refs: list[Any] = []
        for arg in args if not kwargs else (*args, *kwargs.values()):
            if type(arg) in NUMBERS:  # asking whether it is a tensor takes longer
                refs.append(arg)
            elif isinstance(arg, torch.Tensor):
                ref = self.ref(arg)
                if ref is None:
                    sure = False
                else:
                    entry = ref[0]
                    if entry.unseen:
                        sure = False
                        if info.mutates or inside is not None:  # there is no later chance
                            self._look_into(entry, arg)
                    if entry.tainted:
                        tainted = [ref] if tainted is None else [*tainted, ref]
                    if entry.from_grad:
                        record.reads_grad = True
                    if arg.requires_grad:
                        requires_grad = True
                        if not entry.leaf and arg.is_leaf:
                            self._meet_leaf(entry, arg)
                refs.append(ref)
            elif isinstance(arg, (list, tuple)) and _holds_tensors(arg):
                group = [self.ref(t) if isinstance(t, torch.Tensor) else None for t in arg]
                for tensor, ref in zip(arg, group, strict=True):
                    if ref is None:
                        sure = False
                    else:
                        if ref[0].unseen:
                            self._look_into(ref[0], tensor)
                        if ref[0].tainted:
                            tainted = [ref] if tainted is None else [*tainted, ref]
                        if ref[0].from_grad:
                            record.reads_grad = True
                        if tensor.requires_grad:
                            requires_grad = True
                            if not ref[0].leaf and tensor.is_leaf:
                                self._meet_leaf(ref[0], tensor)
                refs.append(group)
            else:
                refs.append(arg)
        if requires_grad and grad_enabled and node is None:
            self.began = True
            record.reads_grad = False
            if local.updated:
                self._hand_written_step(record)
        if not self.began:
            record.setup = True
        if tainted is None:
            record.surely_finite = sure
        else:
            overwritten = refs[0] if info.overwrites else None
            record.tainted_in = [ref for ref in tainted if ref is not overwritten] or None
        if kwargs:
            record.kwargs = dict(zip(kwargs, refs[len(args) :], strict=True))
            del refs[len(args) :]
        record.args = refs
        if info.write_args:
            self._save_operands(record, info, args)
        return record

    def _claim_view(self, local: Local) -> None:
        record = Record()
        node = current_node()
        if node is None:
            record.module = self.calls.running()
            frames = capture(sys._getframe(3))
        else:
            frames = self._begin_backward(record, node, local)
        self._claim_nodes(Origin(frames, record.module), local)

    def _claim_nodes(self, origin: Origin, local: Local, levels: int = MAX_LEVELS) -> None:
        """The autograd nodes made since the last operation are this one's: one for each level
        of differentiation. A node that another operation claimed stays that one's."""
        newest, claimed = sequence_number(), local.claimed
        if newest == claimed + 1:
            local.made.setdefault(claimed, origin)
        else:
            for number in range(max(claimed, newest - levels), newest):
                local.made.setdefault(number, origin)
        local.claimed = newest

    def _hand_written_step(self, record: Record) -> None:
        """The first differentiable operation after an update by hand: a new step begins."""
        local = self.local
        local.updated = local.differentiated = False
        self.follower.leaves_updated()
        self.end_of_step()
        record.step = self.step

    def _begin_backward(self, record: Record, node: Any, local: Local) -> Frames | None:
        frame = sys._getframe(4)
        frames = capture(frame, ENGINE)
        record.node = node.name()
        made = local.made.get(sequence_of(node))
        record.module = made.module if made is not None else None
        if frames is None:
            record.derived = True
            if made is not None:
                return made.frames
            return capture(_below_engine(frame))
        # A user's frame inside the engine: a custom backward, a hook, or a checkpoint's replay.
        if passes_through(frame, CHECKPOINT, ENGINE):
            record.node = None
            record.module = self.calls.running() or record.module
        return frames

    def ref(self, tensor: torch.Tensor) -> Ref | None:
        try:
            entry = self.entries.get(storage_id(tensor))
            window = (tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
        except (NotImplementedError, RuntimeError):
            return None  # sparse, nested
        if entry is None or (entry.held is None and entry.is_gone()):
            if tensor.layout is not _strided or is_zero_tensor(tensor):
                return None  # a zero tensor of forward-mode autograd has no memory at all
            entry = self._meet(tensor)
        elif entry.partial and not entry.tainted and tensor.dtype in INEXACT:
            self._look_into(entry, tensor)
        return _new_ref(Ref, (entry, *window))

    def _meet(self, tensor: torch.Tensor) -> Entry:
        """First sight of a storage that nothing recorded made."""
        storage = tensor.untyped_storage()
        entry = Entry(storage)
        entry.watch(storage)
        self.entries[entry.cdata] = entry
        if tensor.dtype in INEXACT and can_be_read(tensor):
            size = tensor.numel() * tensor.element_size()
            whole = entry.nbytes == size
            entry.partial = not whole
            if whole and current_node() is not None:
                entry.unseen = True
            else:
                self._look_into(entry, tensor)
        return entry

    def _look_into(self, entry: Entry, tensor: torch.Tensor) -> None:
        entry.unseen = False
        if is_in_memory(tensor) and has_nonfinite(tensor.detach()):
            entry.tainted = self.met_bad = True

    def _meet_leaf(self, entry: Entry, tensor: torch.Tensor) -> None:
        entry.leaf = True
        self.local.leaves[entry.cdata] = torch.utils.weak.TensorWeakRef(tensor)

    def _meet_viewed_leaf(self, args: Any) -> None:
        """A leaf that only ever serves through a view: `weight.t()`."""
        tensor = args[0] if args else None
        if isinstance(tensor, torch.Tensor) and tensor.requires_grad and tensor.is_leaf:
            ref = self.ref(tensor)
            if ref is not None and not ref[0].leaf:
                self._meet_leaf(ref[0], tensor)

    def _save_operands(self, record: Record, info: OpInfo, args: Any) -> None:
        if info.random or info.overwrites:
            return
        for position in info.write_args:
            if position >= len(args):
                continue
            arg = args[position]
            saved: Any = None
            if isinstance(arg, torch.Tensor):
                saved = self._saved(info, arg, record.args[position])
            elif isinstance(arg, (list, tuple)) and isinstance(record.args[position], list):
                pairs = zip(arg, record.args[position], strict=True)
                saved = [self._saved(info, tensor, ref) for tensor, ref in pairs]
            if saved is not None:
                record.before = record.before or {}
                record.before[position] = saved

    def _saved(self, info: OpInfo, tensor: Any, ref: Ref | None) -> torch.Tensor | None:
        if ref is None or ref.entry.partial or tensor.dtype not in INEXACT:
            return None
        if not is_in_memory(tensor):
            return None
        small = tensor.numel() <= SMALL_NUMEL or self.careful or self.shadowing
        if small or info.row.is_risky or tensor.element_size() < 4:
            return tensor.detach().clone()  # type: ignore[no-any-return]  # Any in, Tensor out
        return None

    def _end(
        self,
        record: Record,
        info: OpInfo,
        args: Any,
        kwargs: dict[str, Any],
        out: Any,
        local: Local,
    ) -> None:
        outs: list[Ref] = []
        record.outs = outs
        if info.mutates:
            written = [args[i] for i in info.write_args if i < len(args)]
            written += [kwargs[name] for name in info.write_kwargs if name in kwargs]
            bad = self._written(record, info, written, local)
            # Some in-place operations also return something new (native_batch_norm's statistics).
            if not isinstance(out, torch.Tensor) and out is not None:
                seen = {id(t) for t in _flat(written)}
                fresh = [t for t in _flat((out,)) if id(t) not in seen]
                bad += self._written(record, info, fresh, local)
        elif isinstance(out, torch.Tensor):
            bad = self._written(record, info, (out,), local)
        elif isinstance(out, (tuple, list)):
            bad = self._written(record, info, out, local)
        else:
            bad = ()
        if not outs and not info.reads_out:
            return
        self.records[record.index] = record
        if bad:
            record.bad = bad
            self._suspect(record)
            if info.mutates and self.uses_optimizer and not record.in_optimizer:
                averages = [t for t in written if type(t) is _Parameter and not t.requires_grad]
                if averages:
                    self.follower.average_spoilt(averages)
        elif record.tainted_in:
            self.follower.absorbed(record)
        if self.shadowing:
            self.follower.shadowed(record)
        if len(self.records) > MAX_RECORDS:
            forget(self, before=self.next_index - MAX_RECORDS // 2)
            self.follower.operations_are_many()

    def _written(self, record: Record, info: OpInfo, tensors: Any, local: Local) -> tuple[int, ...]:
        """Note what was written; returns which of the record's outputs are non-finite."""
        entries, outs = self.entries, record.outs
        bad: tuple[int, ...] = ()
        for tensor in tensors:
            if not isinstance(tensor, torch.Tensor):
                if isinstance(tensor, (list, tuple)):
                    bad += self._written(record, info, tensor, local)
                continue
            try:
                storage = tensor.untyped_storage()
                dtype = tensor.dtype
                window = (tensor.storage_offset(), tensor.shape, tensor.stride(), dtype)
            except (NotImplementedError, RuntimeError):
                continue  # sparse, nested
            if tensor.is_meta or (not storage.nbytes() and tensor.numel()):
                continue
            cdata = address_of(storage)
            entry = entries.get(cdata)
            fresh = entry is None or (entry.held is None and entry.is_gone())
            if entry is None or fresh:
                if tensor.layout is not _strided or is_zero_tensor(tensor):
                    continue
                entry = Entry(storage)
                local.holder.hold(entry, storage)
                entries[cdata] = entry
            elif not info.mutates and not info.entry and _is_alias(entry, record):
                continue  # `_unsafe_view` and the like: new in the schema, old in memory
            elif info.base == "set" and entry.writers:
                continue  # a tensor is laid over a storage that is known
            else:
                local.holder.hold(entry, storage)
            whole = (fresh and info.namespace == "aten") or (
                tensor.numel() * tensor.element_size() >= entry.nbytes
            )
            ref = _new_ref(Ref, (entry, *window))
            if info.allocates:
                entry.partial = True
                entry.tainted = False
            elif dtype in INEXACT:
                is_bad, entry.norm = False, None
                if not record.surely_finite:
                    is_bad, entry.norm = look(tensor.detach() if tensor.requires_grad else tensor)
                if is_bad:
                    entry.tainted = self.met_bad = True
                    bad += (len(outs),)
                if whole:
                    entry.tainted = is_bad
                    entry.partial = entry.unseen = False
                    entry.overflowed = False
                else:
                    entry.norm = None
            elif whole:
                entry.partial = False
            if not entry.leaf:
                entry.from_grad = record.reads_grad and record.node is None
            elif record.node is None and local.differentiated and not self.uses_optimizer:
                local.updated = True
            entry.writers.append((record.index, ref))
            outs.append(ref)
        return bad

    # ---- off the hot path -----------------------------------------------------------

    def _suspect(self, record: Record) -> None:
        """An output is non-finite: keep what explains it for as long as the budget allows."""
        for ref in record_refs(record):
            if ref[0].unseen and (seen := ref.tensor()) is not None:
                self._look_into(ref[0], seen)
                if ref[0].tainted:
                    record.tainted_in = [*(record.tainted_in or ()), ref]
        tainted = record.tainted_in
        makes_it = not tainted and not record.info.entry and not writes_literal(record)
        if makes_it:
            self._copy_operands(record)
        for position in record.bad:
            entry = record.outs[position][0]
            entry.overflowed = makes_it or any(ref[0].overflowed for ref in tainted or ())
        # What comes in is often a temporary, of which the program itself keeps a copy only.
        refs = record.outs if record.info.entry else record_refs(record)
        kept = {ref[0]: ref[0].keep() for ref in refs}
        record.kept = tuple(s for s in kept.values() if s is not None)
        size = sum(s.nbytes() for s in record.kept)
        local = self.local
        local.kept.append((record, size))
        local.kept_bytes += size
        while local.kept_bytes > KEEP_BYTES and len(local.kept) > 1:
            let_go_oldest(local)

    def _copy_operands(self, record: Record) -> None:
        """Of a first bad value: a counter that it was divided by may count on before anybody asks."""
        copies: dict[int, Any] = {}
        written = [ref[0] for ref in record.outs]  # `x.mul_(x)`: what was there is gone
        for position, arg in enumerate(record.args):
            if isinstance(arg, Ref) and arg[0] not in written:
                tensor = arg.tensor() if math.prod(arg.shape) <= SMALL_NUMEL else None
                if tensor is not None:
                    copies[position] = tensor.detach().clone()
        record.before = copies | (record.before or {}) or None

    def _failed(self, error: Exception) -> None:
        """One operation could not be recorded: go on without it, but not for ever."""
        self.failures += 1
        self.last_failure = f"{type(error).__name__}: {error}"
        if self.failures > MAX_FAILURES:
            self.step_aside(error)

    def step_aside(self, error: BaseException) -> None:
        """whynan's own failure never becomes the program's."""
        self.active = False
        self.broken = f"{type(error).__name__}: {error}"
        self.follower.stepped_aside(error)

    def end_of_step(self) -> None:
        """A healthy step is over: forget it."""
        self.step += 1
        forget(self, before=self.next_index)


_default_dispatch = torch.Tensor.__torch_dispatch__


def _holds_tensors(arg: Any) -> bool:
    return any(type(item) not in NUMBERS and isinstance(item, torch.Tensor) for item in arg)


def _flat(items: Any) -> list[torch.Tensor]:
    flat: list[torch.Tensor] = []
    for item in items:
        if isinstance(item, torch.Tensor):
            flat.append(item)
        elif isinstance(item, (list, tuple)):
            flat += _flat(item)
    return flat


def _is_alias(entry: Entry, record: Record) -> bool:
    return any(ref.entry is entry for ref in record_refs(record))


def _below_engine(frame: Any) -> Any:
    while frame is not None and frame.f_code is not ENGINE:
        frame = frame.f_back
    return frame

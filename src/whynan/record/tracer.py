"""Records every operation of a traced block: the hot path, kept short and straight."""

from __future__ import annotations

import sys
from types import CodeType
from typing import Any

import torch

from whynan.errors import StopRun
from whynan.record.attribution import MAX_LEVELS, MAX_NODES, begin_backward, claim_nodes, claim_view
from whynan.record.deferring import Later, conclude
from whynan.record.follower import Follower
from whynan.record.local import Local, PerThread
from whynan.record.meeting import look_into, meet, meet_leaf, meet_viewed_leaf
from whynan.record.mode import PLAIN_TYPES
from whynan.record.records import NUMBERS, Origin, Record, flat, holds_tensors, is_alias
from whynan.record.retention import MANY_RECORDS, forget, make_room
from whynan.record.saving import INEXACT, save_operands
from whynan.record.schema import OpInfo, info_for
from whynan.record.storages import Entry, Ref
from whynan.seam.calls import Calls
from whynan.seam.devices import is_capturing
from whynan.seam.private import (
    address_of,
    current_node,
    dispatch_modes,
    is_zero_tensor,
    no_dispatch,
    storage_id,
    tracing_state,
)
from whynan.seam.quiet import Quiet
from whynan.seam.sites import capture
from whynan.seam.stats import look

_strided = torch.strided
_Parameter = torch.nn.Parameter
_Generator = torch.Generator
_new_ref = tuple.__new__
_grad_enabled = torch.is_grad_enabled

MAX_FAILURES = 100
HOLD_BYTES = 8 << 20  # more would keep the allocator from reusing warm memory


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
        self.room = MANY_RECORDS  # so many records, and it is asked whether they are too many
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
        self.on_device = False  # there may be tensors of an accelerator
        self.later = Later(self)

    @property
    def local(self) -> Local:
        """What is known about the calling thread."""
        return self._per_thread.local

    def entry_of(self, tensor: torch.Tensor) -> Entry | None:
        """What is known about a tensor's storage."""
        if self.on_device:
            self.later.settle()
        try:
            entry = self.entries.get(storage_id(tensor))
        except (NotImplementedError, RuntimeError):
            return None  # sparse, nested, handed out by torch.func
        return None if entry is None or entry.is_gone() else entry

    # ---- hot path -------------------------------------------------------------------

    def dispatch(
        self, info: OpInfo, types: Any, args: Any, kwargs: dict[str, Any], local: Local
    ) -> Any:
        if self._per_thread.local is not local:  # a device's thread works for this one
            self._per_thread.work_for(local)
        if not self.active or self._own.own or (self.on_device and is_capturing()):
            return info.call(*args, **kwargs)
        if self.stopping:
            raise StopRun
        if dispatch_modes() or tracing_state() is not None:
            return info.call(*args, **kwargs)  # fake tensors, make_fx, torch.jit.trace: not a run
        if types not in PLAIN_TYPES and any(
            getattr(t, "__torch_dispatch__", no_dispatch) not in (no_dispatch, _default_dispatch)
            for t in types
        ):
            # A tensor subclass unpacks itself; its inner operations come here.
            return NotImplemented
        try:
            if info.view:  # it writes nothing; its node needs a call site
                if _grad_enabled():
                    if not info.turns:
                        claim_view(self, local)
                    meet_viewed_leaf(self, local, args)
                return info.call(*args, **kwargs)
            if info.quiet is not None:
                info = info_for(info, args)
            record = self.begin(info, args, kwargs, local)
        except Exception as error:
            self.failed(error)
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
            self.end(record, info, args, kwargs, out, local)
        except Exception as error:
            self.failed(error)
        return out

    def begin(
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
            try:
                frame = sys._getframe(3)
            except ValueError:  # a device's thread has none of the program's
                frame = None
            frames = (record.in_optimizer and local.optimizer_frames) or capture(frame)
            record.module = self.calls.running()
            if inside is not None and frames is not None:
                frames = frames._replace(inside=inside)
        else:
            frames = begin_backward(record, node, self, local)
        record.frames = frames
        if grad_enabled:
            levels = MAX_LEVELS if inside is None else MAX_NODES
            nodes = local.nodes if node is None else local.nodes_here()
            claim_nodes(Origin(frames, record.module, record.index), nodes, levels)
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
                            look_into(self, entry, arg)
                    if entry.tainted:
                        tainted = [ref] if tainted is None else [*tainted, ref]
                    if entry.from_grad:
                        record.reads_grad = True
                    if arg.requires_grad:
                        requires_grad = True
                        if not entry.leaf and arg.is_leaf:
                            meet_leaf(local, entry, arg)
                refs.append(ref)
            elif isinstance(arg, (list, tuple)) and holds_tensors(arg):
                group = [self.ref(t) if isinstance(t, torch.Tensor) else None for t in arg]
                for tensor, ref in zip(arg, group, strict=True):
                    if ref is None:
                        sure = False
                    else:
                        if ref[0].unseen:
                            look_into(self, ref[0], tensor)
                        if ref[0].tainted:
                            tainted = [ref] if tainted is None else [*tainted, ref]
                        if ref[0].from_grad:
                            record.reads_grad = True
                        if tensor.requires_grad:
                            requires_grad = True
                            if not ref[0].leaf and tensor.is_leaf:
                                meet_leaf(local, ref[0], tensor)
                refs.append(group)
            else:
                if type(arg) is _Generator:
                    self.follower.generator_used(arg)
                refs.append(arg)
        if requires_grad and grad_enabled and node is None:
            self.began = True
            record.reads_grad = False
            if local.updated or local.replaced:
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
            save_operands(self, record, info, args)
        return record

    def _hand_written_step(self, record: Record) -> None:
        """The first differentiable operation after an update by hand: a new step begins."""
        local = self.local
        is_new = local.replaced and not local.updated  # perhaps a proposal: nobody judges it yet
        local.begin_turn()
        if self.uses_optimizer or (is_new and self.will_train):
            return
        if not is_new:
            self.follower.leaves_updated()
        self.end_of_step()
        record.step = self.step

    def ref(self, tensor: torch.Tensor) -> Ref | None:
        try:
            entry = self.entries.get(storage_id(tensor))
            window = (tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
        except (NotImplementedError, RuntimeError):
            return None  # sparse, nested
        if entry is None or (entry.held is None and entry.is_gone()):
            if tensor.layout is not _strided or is_zero_tensor(tensor):
                return None  # a zero tensor of forward-mode autograd has no memory at all
            entry = meet(self, tensor)
        elif entry.partial and not entry.tainted and tensor.dtype in INEXACT:
            look_into(self, entry, tensor)
        return _new_ref(Ref, (entry, *window))

    def end(
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
                seen = {id(t) for t in flat(written)}
                fresh = [t for t in flat(out) if id(t) not in seen]
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
        if bad or record.tainted_in or self.shadowing or (self.on_device and self.later):
            record.bad = bad
            averages: list[Any] = []
            if info.mutates and self.uses_optimizer and not record.in_optimizer:
                averages = [t for t in written if type(t) is _Parameter and not t.requires_grad]
            if not self.later.ends(record, averages):
                conclude(self, record, averages)
        if len(self.records) > self.room:
            make_room(self)
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
            elif not info.mutates and not info.entry and is_alias(entry, record):
                continue  # `_unsafe_view` and the like: new in the schema, old in memory
            elif info.base == "set" and entry.writers:
                continue  # a tensor is laid over a storage that is known
            else:
                local.holder.hold(entry, storage)
            if info.exchanges:
                entry.share()
            whole = (fresh and info.namespace == "aten") or (
                tensor.numel() * tensor.element_size() >= entry.nbytes
            )
            ref = _new_ref(Ref, (entry, *window))
            if info.allocates:
                entry.partial = True
                entry.tainted = False
            elif dtype in INEXACT and self.on_device and not (tensor.is_cpu or self.shadowing):
                entry.norm = None
                if whole:
                    entry.partial = entry.unseen = False
                self.later.written(record, len(outs), entry, whole, tensor)
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

    def failed(self, error: Exception) -> None:
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

"""The places where a non-finite value matters, watched with hooks and a few wrapped functions."""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from whynan.errors import StopRun
from whynan.model import Evidence, HistoryRow, Scalar, Sink, number
from whynan.record.exceptions import harm_of_exception
from whynan.record.modules import ModuleTracker
from whynan.record.patches import Patches
from whynan.record.records import Record
from whynan.record.shadow import Shadows
from whynan.record.sites import Frames, capture, is_torch_file
from whynan.record.slicing import Harm
from whynan.record.stats import has_nonfinite
from whynan.record.storages import storage_id
from whynan.record.tracer import Tracer

HISTORY_ROWS = 512
SKIPS_IN_A_ROW = 8
READERS = ("numpy", "tolist", "__repr__", "__format__", "__array__")
# Operations by which a program looks for non-finite values itself.
LOOKS = frozenset({"isnan", "isinf", "isfinite", "ne", "eq", "isposinf", "isneginf"})
HYPER = ("lr", "betas", "eps", "weight_decay", "momentum", "alpha", "nesterov", "rho")


class Sinks:
    """Watches every sink of the traced block and reports each `Harm` it sees."""

    def __init__(
        self,
        report: Callable[[Harm], None],
        look: Callable[[Harm], Evidence | None],
        hold_bytes: int,
    ) -> None:
        self.report = report
        self._look = look
        self.modules = ModuleTracker(self._outermost_starts, self._outermost_ends)
        self.tracer = Tracer(self.modules, hold_bytes=hold_bytes)
        self.tracer.on_read_out = self._item
        self.tracer.on_absorbed = self._absorbed
        self.history: deque[HistoryRow] = deque(maxlen=HISTORY_ROWS)
        self.on_step: Callable[[int], None] = lambda step: None
        self._patches = Patches()
        self._handles: list[Any] = []
        self._modes: list[Any] = []
        self._stance: Any = None
        self.notes: list[str] = []
        self._pending_output: Harm | None = None
        self._loss: float | None = None
        self._grad_max: float | None = None
        self._skips = 0
        self._uses_scaler = False
        self._shadows = Shadows(self.tracer, self._look_at_overflow)
        self.tracer.on_shadowed = self._follow
        self.tracer.on_hand_update = self._hand_update

    # ---- installing -----------------------------------------------------------------

    def install(self) -> None:
        self.modules.install()
        self._handles = [
            register_optimizer_step_pre_hook(self._before_step),
            register_optimizer_step_post_hook(self._after_step),
        ]
        wrap = self._patches.wrap
        wrap(torch.autograd, "_engine_run_backward", self._wrap_engine)
        for name in READERS:
            wrap(torch.Tensor, name, self._wrap_reader)
        wrap(torch, "save", self._wrap_save)
        wrap(torch, "compile", self._wrap_compile)
        wrap(torch.amp.GradScaler, "step", self._wrap_scaler)
        wrap(torch.utils.data.dataloader._BaseDataLoaderIter, "__next__", self._wrap_loader)
        wrap(threading.Thread, "_bootstrap_inner", self._wrap_thread)
        os.register_at_fork(after_in_child=self._deactivate)
        self.tracer.active = True
        mode = self.tracer.mode()
        mode.__enter__()  # type: ignore[no-untyped-call]  # torch
        self._modes.append(mode)

    def _deactivate(self) -> None:
        self.tracer.active = False

    def remove(self) -> None:
        self.tracer.active = False
        while self._modes:
            self._modes.pop().__exit__(None, None, None)
        self._patches.restore()
        if self._stance is not None:
            self._stance.__exit__(None, None, None)
            self._stance = None
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self.modules.remove()
        self.tracer.clear()

    # ---- reporting ------------------------------------------------------------------

    def _quietly(self, work: Callable[[], None]) -> None:
        """Run whynan's own work: not recorded, and its errors are not the program's."""
        tracer = self.tracer
        if not tracer.active or tracer.local.busy:
            return
        tracer.local.busy += 1
        try:
            work()
        except Exception as error:
            tracer._step_aside(error)
        finally:
            tracer.local.busy -= 1

    def _check(
        self,
        sink: Sink,
        named: Iterable[tuple[str, torch.Tensor]],
        frames: Frames | None,
        **more: Any,
    ) -> None:
        """Report harm if any of these tensors is non-finite."""
        bad = [(name, tensor) for name, tensor in named if self.is_nonfinite(tensor)]
        if bad:
            if sink == "observed":
                self._flush_output()
            self._harm(
                Harm(
                    sink=sink,
                    subject=bad[0][0],
                    tensors=[tensor.detach() for _, tensor in bad[:4]],
                    frames=frames,
                    step=self.tracer.step,
                    **more,
                )
            )

    def _harm(self, harm: Harm) -> None:
        self.tracer.local.busy += 1
        try:
            self.report(harm)
        finally:
            self.tracer.local.busy -= 1

    def _check_right(
        self,
        sink: Sink,
        named: Iterable[tuple[str, torch.Tensor]],
        frames: Frames | None,
        **more: Any,
    ) -> None:
        """Report harm if an absorbed overflow made one of these finite values wrong."""
        if not self._shadows:
            return
        everything = list(named)
        for name, tensor in everything:
            wrong = self._shadows.wrong(tensor)
            if wrong is None:
                continue
            evidence, right = wrong
            self._harm(
                Harm(
                    sink=sink,
                    subject=name,
                    known=evidence,
                    frames=frames,
                    step=self.tracer.step,
                    effect=_effect(sink, name, tensor, right, [t for _, t in everything]),
                    **more,
                )
            )
            return

    def _look_at_overflow(self, record: Record) -> Evidence | None:
        return self._look(Harm(sink="output", subject="", record=record, step=self.tracer.step))

    def _follow(self, record: Record) -> None:
        self._shadows.follow(record)
        self.tracer.shadowing = bool(self._shadows)

    def is_nonfinite(self, tensor: torch.Tensor) -> bool:
        """Known from the recording in nearly all cases, looked at only in doubt."""
        if tensor.layout is not torch.strided:
            values = _stored_values(tensor)
            return values is not None and has_nonfinite(values)
        if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.is_meta:
            return False
        entry = self.tracer.entry_of(tensor)
        if entry is not None and not entry.tainted and not entry.partial:
            return False
        return has_nonfinite(tensor.detach())

    # ---- loss, gradients, parameters ------------------------------------------------

    def _wrap_engine(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def run_backward(roots: Any, *args: Any, **kwargs: Any) -> Any:
            nested = torch._C._current_autograd_node() is not None
            if not nested:
                frames = capture(sys._getframe(1))
                self._quietly(lambda: self._before_backward(roots, frames))
            result = original(roots, *args, **kwargs)
            if not nested:
                self._quietly(self._after_backward)
            return result

        return run_backward

    def _before_backward(self, roots: Any, frames: Frames | None) -> None:
        self._pending_output = None
        tensors = [t for t in roots if isinstance(t, torch.Tensor) and torch._C._has_storage(t)]
        if self.tracer.local.optimizer is None:
            self._loss = _value_of(tensors)
        if any(self._is_scaled(t) for t in tensors):
            self._uses_scaler = True  # GradScaler decides at the step
            return
        self._check("loss", [("loss", t) for t in tensors], frames)
        self._check_right("loss", [("loss", t) for t in tensors], frames)

    def _is_scaled(self, tensor: torch.Tensor) -> bool:
        entry = self.tracer.entry_of(tensor)
        if entry is None or not entry.writers:
            return False
        record = self.tracer.records.get(entry.writers[-1][0])
        inside = record.frames.inside if record is not None and record.frames else None
        return inside is not None and inside.co_qualname.startswith("GradScaler.scale")

    def _after_backward(self) -> None:
        self.tracer.local.differentiated = True
        for weak in list(self.tracer.local.leaves.values()):
            leaf = weak()
            grad = None if leaf is None else leaf.grad
            if grad is not None and grad.layout is torch.strided:
                entry = self.tracer.entry_of(grad)
                if entry is not None:
                    entry.from_grad = True

    def _parameters(self, optimizer: torch.optim.Optimizer) -> list[tuple[str, torch.Tensor]]:
        named = []
        for g, group in enumerate(optimizer.param_groups):
            for i, parameter in enumerate(group["params"]):
                named.append((f"param_groups[{g}][{i}]", parameter))
        return named

    def _label(self, fallback: str, parameter: torch.Tensor) -> str:
        return self.modules.parameter_name(parameter) or fallback

    def _before_step(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        frames = capture(sys._getframe(1))
        self.tracer.uses_optimizer = True
        self._quietly(lambda: self._check_gradients(optimizer, frames))
        self.tracer.local.optimizer = optimizer

    def _check_gradients(self, optimizer: torch.optim.Optimizer, frames: Frames | None) -> None:
        self.tracer.began = True
        named = [(n, p) for n, p in self._parameters(optimizer) if p.grad is not None]
        bad = [(n, p) for n, p in named if p.grad is not None and self.is_nonfinite(p.grad)]
        if bad:
            name = self._label(*bad[0])
            self._check(
                "gradient",
                [(f"gradient of {name}", p.grad) for _, p in bad if p.grad is not None],
                frames,
                parameter=name,
                hyper=_hyper(optimizer),
            )
        self._check_right(
            "gradient",
            [(f"gradient of {self._label(n, p)}", p.grad) for n, p in named if p.grad is not None],
            frames,
            hyper=_hyper(optimizer),
        )
        self._grad_max = _largest([p.grad for _, p in named if p.grad is not None])

    def _after_step(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        frames = capture(sys._getframe(1))
        self.tracer.local.optimizer = None
        self._quietly(lambda: self._check_step(optimizer, frames))
        self.on_step(self.tracer.step)

    def _check_step(self, optimizer: torch.optim.Optimizer, frames: Frames | None) -> None:
        hyper = _hyper(optimizer)
        lr = hyper.get("lr")
        self.history.append(
            HistoryRow(
                step=self.tracer.step,
                loss=self._loss,
                grad_max=self._grad_max,
                lr=lr if isinstance(lr, float) else None,
            )
        )
        candidates: list[tuple[str, torch.Tensor, str | None]] = []
        for fallback, parameter in self._parameters(optimizer):
            candidates.append((fallback, parameter, None))
            for key, state in optimizer.state.get(parameter, {}).items():
                if isinstance(state, torch.Tensor) and torch._C._has_storage(state):
                    candidates.append((fallback, state, str(key)))
        bad = [(f, t, k) for f, t, k in candidates if self.is_nonfinite(t)]
        if bad:
            # The state is written before the parameter: its tensor leads to the origin.
            fallback, _, key = bad[0]
            owner = dict(self._parameters(optimizer))[fallback]
            name = self._label(fallback, owner)
            subject = (
                f"{type(optimizer).__name__}'s {key} of {name}" if key else f"parameter {name}"
            )
            self._harm(
                Harm(
                    sink="parameter",
                    subject=subject,
                    tensors=[t.detach() for _, t, _ in bad[:4]],
                    frames=frames,
                    step=self.tracer.step,
                    parameter=name,
                    hyper=hyper | {"optimizer": type(optimizer).__name__},
                )
            )
        self._check_buffers(frames)
        self.tracer.end_of_step()
        self._shadows.forget()
        self.tracer.shadowing = bool(self._shadows)

    def _hand_update(self) -> None:
        """A hand-written update is complete: look at the leaves it wrote."""
        leaves = [weak() for weak in self.tracer.local.leaves.values()]
        named = [
            (f"parameter {self._label('a leaf tensor', t)}", t) for t in leaves if t is not None
        ]
        self._quietly(lambda: self._check("parameter", named, None))

    def _check_buffers(self, frames: Frames | None) -> None:
        """Buffers written in this step; one that was non-finite from the start is a mask."""
        for root in self.modules.roots():
            for name, buffer in root.named_buffers():
                if not torch._C._has_storage(buffer) or not buffer.is_floating_point():
                    continue
                entry = self.tracer.entry_of(buffer)
                if entry is None or not entry.tainted:
                    continue
                records = [self.tracer.records.get(i) for i, _ in entry.writers]
                if any(
                    r is not None and r.step == self.tracer.step and not r.setup for r in records
                ):
                    self._check(
                        "parameter",
                        [(f"buffer {name}", buffer)],
                        frames,
                        parameter=name,
                        is_buffer=True,
                    )

    # ---- mixed precision ------------------------------------------------------------

    def _wrap_scaler(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            before = self.tracer.step
            result = original(scaler, optimizer, *args, **kwargs)
            self._uses_scaler = True
            self._skips = self._skips + 1 if self.tracer.step == before else 0
            frames = capture(sys._getframe(1))
            if self._skips >= SKIPS_IN_A_ROW:
                self._quietly(lambda: self._check_scaler(scaler, optimizer, frames))
            return result

        return step

    def _check_scaler(self, scaler: Any, optimizer: Any, frames: Frames | None) -> None:
        skips, self._skips = self._skips, 0
        named = [
            (f"gradient of {self._label(n, p)}", p.grad)
            for n, p in self._parameters(optimizer)
            if p.grad is not None
        ]
        effect = f"GradScaler skipped {skips} steps in a row; the loss scale fell to {scaler.get_scale():g}"
        self._check("gradient", named, frames, effect=effect)

    # ---- module output --------------------------------------------------------------

    def _outermost_starts(self, _module: torch.nn.Module) -> None:
        self.tracer.began = True
        self._quietly(self._flush_output)

    def _outermost_ends(self, module: torch.nn.Module, output: Any) -> None:
        frames = capture(sys._getframe(2))
        self._quietly(lambda: self._look_at_output(module, output, frames))

    def _look_at_output(self, module: Any, output: Any, frames: Frames | None) -> None:
        tensors = [t for t in tensors_in(output) if not t.requires_grad and self.is_nonfinite(t)]
        if tensors:
            self._pending_output = Harm(
                sink="output",
                subject=f"output of {type(module).__name__}",
                tensors=[t.detach() for t in tensors[:4]],
                frames=frames,
                step=self.tracer.step,
            )

    def _flush_output(self) -> None:
        harm, self._pending_output = self._pending_output, None
        if harm is not None:
            self._harm(harm)

    def _absorbed(self, record: Record) -> None:
        """A finite result out of a non-finite input: the program dealt with it, rightly or not."""
        if any(ref.entry.overflowed for ref in record.tainted_in or ()):
            self.tracer.shadowing = True
        harm = self._pending_output
        if harm is None:
            return
        deals = record.info.base in LOOKS or any(o.dtype.is_floating_point for o in record.outs)
        storages = {storage_id(t) for t in harm.tensors}
        if deals and any(ref.entry.cdata in storages for ref in record.tainted_in or ()):
            self._pending_output = None

    # ---- values read out ------------------------------------------------------------

    def _item(self, record: Record, value: Any) -> None:
        if not isinstance(value, (float, complex)) or value - value == 0:
            return
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename.endswith(
            ("whynan/record/tracer.py", "torch/_tensor.py", "torch/utils/_python_dispatch.py")
        ):
            frame = frame.f_back  # type: ignore[assignment]  # a frame has no end here
        if frame is None or record.frames is None or frame.f_code is not record.frames.code:
            return  # torch reads it for its own purposes
        tensor = record.args[0].tensor()
        if tensor is not None:
            self._quietly(
                lambda: self._check("observed", [("value read by item()", tensor)], record.frames)
            )

    def _wrap_reader(self, original: Callable[..., Any]) -> Callable[..., Any]:
        subject = {
            "__repr__": "printed tensor", "__format__": "printed tensor",
            "__array__": "array handed to NumPy", "numpy": "array handed to NumPy",
            "tolist": "list read by tolist()",
        }[original.__name__]  # fmt: skip

        def read(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            local = self.tracer.local
            if local.busy or not self.tracer.active:
                return original(tensor, *args, **kwargs)
            caller = sys._getframe(1)
            frames = None if is_torch_file(caller.f_code.co_filename) else capture(caller)
            if frames is not None and torch._C._has_storage(tensor):
                self._quietly(lambda: self._check("observed", [(subject, tensor)], frames))
            local.busy += 1  # formatting is torch's work, not the program's
            try:
                return original(tensor, *args, **kwargs)
            finally:
                local.busy -= 1

        return read

    def _wrap_save(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def save(obj: Any, *args: Any, **kwargs: Any) -> Any:
            frames = capture(sys._getframe(1))
            self._quietly(
                lambda: self._check(
                    "observed", [("saved tensor", t) for t in tensors_in(obj)], frames
                )
            )
            return original(obj, *args, **kwargs)

        return save

    # ---- compiled functions ---------------------------------------------------------

    def _wrap_compile(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def compile_eagerly(*args: Any, **kwargs: Any) -> Any:
            if self._stance is None and self.tracer.active:
                self._stance = torch.compiler.set_stance("force_eager")
                self.notes.append("torch.compile was in use; the traced run executed it eagerly")
            return original(*args, **kwargs)

        return compile_eagerly

    # ---- data and threads -----------------------------------------------------------

    def _wrap_loader(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def fetch(iterator: Any) -> Any:
            local = self.tracer.local
            frames = capture(sys._getframe(1))
            local.data += 1
            try:
                batch = original(iterator)
            finally:
                local.data -= 1
            self._quietly(lambda: self._batch_enters(batch, frames))
            return batch

        return fetch

    def _batch_enters(self, batch: Any, frames: Frames | None) -> None:
        self.tracer.began = True
        for tensor in tensors_in(batch):
            ref = self.tracer._ref(tensor)
            if ref is not None and not ref.entry.writers:
                ref.entry.entered = frames

    def _wrap_thread(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def bootstrap(thread: threading.Thread) -> Any:
            if not self.tracer.active:
                return original(thread)
            run = thread.run

            def quiet() -> None:
                with self.tracer.mode(), suppress(StopRun):
                    run()

            thread.run = quiet  # type: ignore[method-assign]  # this thread only
            return original(thread)

        return bootstrap

    # ---- the end --------------------------------------------------------------------

    def raised(self, error: BaseException) -> None:
        """The program ended with this exception: was it about non-finite values?"""

        def look() -> None:
            harm = harm_of_exception(error, self.tracer, self.is_nonfinite)
            if harm is not None:
                self._harm(harm)

        self._quietly(look)

    def finish(self) -> None:
        """The traced block is over: what is still pending now counts."""
        self._quietly(self._flush_output)
        if not self.tracer.uses_optimizer and not self._uses_scaler:
            self._quietly(self._check_leaves)

    def _check_leaves(self) -> None:
        named = []
        for weak in self.tracer.local.leaves.values():
            leaf = weak()
            if leaf is not None and leaf.grad is not None:
                named.append((f"gradient of {self._label('a leaf tensor', leaf)}", leaf.grad))
        self._check("gradient", named, None)


def tensors_in(value: Any, depth: int = 4) -> list[torch.Tensor]:
    """The tensors in a nest of containers."""
    if isinstance(value, torch.Tensor):
        return [value] if torch._C._has_storage(value) else []
    if depth == 0:
        return []
    items: Iterable[Any] = ()
    if isinstance(value, dict):
        items = value.values()
    elif isinstance(value, (list, tuple, set)):
        items = value
    elif hasattr(value, "__dataclass_fields__"):
        items = [getattr(value, name, None) for name in value.__dataclass_fields__]
    return [tensor for item in items for tensor in tensors_in(item, depth - 1)]


def _effect(
    sink: Sink, name: str, tensor: torch.Tensor, right: torch.Tensor, others: list[torch.Tensor]
) -> str:
    """What an absorbed overflow did, in one clause."""
    actual = tensor.detach()
    if sink == "gradient" and all(not bool(t.detach().any()) for t in others):
        return "every gradient became 0"
    at = int((right - actual.to(torch.float64)).abs().reshape(-1).argmax())
    was, should = actual.reshape(-1)[at].item(), right.reshape(-1)[at].item()
    return f"{name} is {number(was)} where float64 gives {number(should)}"


def _stored_values(tensor: torch.Tensor) -> torch.Tensor | None:
    if tensor.layout is torch.sparse_coo:
        return tensor.detach()._values()
    if tensor.layout in (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc):
        return tensor.detach().values()
    return None


def _value_of(tensors: list[torch.Tensor]) -> float | None:
    if len(tensors) == 1 and tensors[0].numel() == 1 and tensors[0].is_floating_point():
        return float(tensors[0].detach())
    return None


def _largest(grads: list[torch.Tensor]) -> float | None:
    ranges = [
        torch.stack(torch.aminmax(g.detach())).abs().max().float()
        for g in grads
        if g.layout is torch.strided and g.is_floating_point() and g.numel()
    ]
    if not ranges:
        return None
    return float(torch.stack([r.to(ranges[0].device) for r in ranges]).max())


def _hyper(optimizer: torch.optim.Optimizer) -> dict[str, Scalar]:
    found: dict[str, Scalar] = {}
    group = optimizer.param_groups[0] if optimizer.param_groups else {}
    for name in HYPER:
        value = group.get(name)
        if isinstance(value, torch.Tensor):
            value = float(value.detach()) if value.numel() == 1 else None
        if isinstance(value, (bool, int, float)) and value is not None:
            found[name] = float(value) if not isinstance(value, bool) else value
        elif isinstance(value, tuple):
            found[name] = str(tuple(float(v) for v in value))
    return found

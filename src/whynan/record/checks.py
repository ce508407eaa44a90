"""Decides harm: is this tensor non-finite, or finite and wrong, at a place where it matters?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from whynan.model import Evidence, Sink, number
from whynan.record.modules import ModuleTracker
from whynan.record.questions import is_test
from whynan.record.records import Record
from whynan.record.shadow import Shadows
from whynan.record.sites import Frames
from whynan.record.slicing import Harm
from whynan.record.stats import has_nonfinite, local_of
from whynan.record.tracer import Tracer

_function_modes: Callable[[], int] = torch._C._len_torch_function_stack
_dispatch_modes: Callable[[], int] = torch._C._len_torch_dispatch_stack
WITNESSES = 4  # of the tensors that went bad together
PLAIN = (torch.Tensor.__torch_dispatch__, torch._C._disabled_torch_dispatch_impl)
Named = Iterable[tuple[str, torch.Tensor]]


@contextmanager
def other_modes_off() -> Iterator[None]:
    """The program's own modes must not see whynan's work."""
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        yield


def has_other_modes() -> bool:
    """Whether the program has modes of its own; the recorder's counts where it was not paused."""
    return bool(_function_modes() or _dispatch_modes())


class Checks:
    """What all sinks share: the recording, the look at a tensor, and the report of harm."""

    def __init__(
        self,
        tracer: Tracer,
        modules: ModuleTracker,
        report: Callable[[Harm], None],
        look: Callable[[Harm], Evidence | None],
    ) -> None:
        self.tracer = tracer
        self.modules = modules
        self.shadows = Shadows(tracer, self._look_at_overflow)
        self.before_observed: Callable[[], None] = lambda: None
        self._report = report
        self._look = look
        tracer.on_shadowed = self._follow

    def quietly(self, work: Callable[[], None]) -> None:
        """Run whynan's own work: not recorded, and its errors are not the program's."""
        tracer = self.tracer
        if not tracer.active or tracer.local.busy or torch._C._get_tracing_state() is not None:
            return
        local = tracer.local
        local.busy += 1
        mode = tracer.pause()  # nearly always the only one
        try:
            if has_other_modes():
                with other_modes_off():
                    work()
            else:
                work()
        except Exception as error:
            tracer.step_aside(error)
        finally:
            tracer.resume(mode)
            local.busy -= 1

    def check(self, sink: Sink, named: Named, frames: Frames | None, **more: Any) -> None:
        """Report harm if any of these tensors is non-finite."""
        bad = [(name, tensor) for name, tensor in named if self.is_nonfinite(tensor)]
        if not bad:
            return
        if sink == "observed":
            more["is_tested"] = frames is not None and is_test(frames.code, frames.lasti)
            if not more["is_tested"]:
                self.before_observed()
        if len(bad) > WITNESSES:  # one of them is that which went bad first: a gradient, in the
            rest = bad[WITNESSES - 1 :]  # last of several layers that make their own NaN
            bad = [*bad[: WITNESSES - 1], min(rest, key=lambda item: self._went_bad(item[1]))]
        tensors = [local_of(tensor).detach() for _, tensor in bad]
        names = [name for name, _ in bad]
        self.harm(
            Harm(sink=sink, subject=names[0], tensors=tensors, names=names, frames=frames, **more)
        )

    def _went_bad(self, tensor: torch.Tensor) -> float:
        """Which operation first wrote something non-finite to it, as far as is known."""
        entry = self.tracer.entry_of(local_of(tensor))
        writers = entry.writers if entry is not None else ()
        records = [(i, self.tracer.records.get(i)) for i, _ in writers]
        return min((i for i, r in records if r is not None and r.bad), default=math.inf)

    def check_right(self, sink: Sink, named: Named, frames: Frames | None, **more: Any) -> None:
        """Report harm if an absorbed overflow made one of these finite values wrong."""
        if not self.shadows:
            return
        everything = list(named)
        for name, tensor in everything:
            wrong = self.shadows.wrong(tensor)
            if wrong is not None:
                evidence, right = wrong
                effect = _effect(sink, name, tensor, right, [t for _, t in everything])
                self.harm(
                    Harm(
                        sink=sink,
                        subject=name,
                        known=evidence,
                        frames=frames,
                        effect=effect,
                        **more,
                    )
                )
                return

    def harm(self, harm: Harm) -> None:
        harm.step = self.tracer.step
        self.tracer.local.busy += 1
        try:
            self._report(harm)
        finally:
            self.tracer.local.busy -= 1

    def explain(self, harm: Harm) -> Evidence | None:
        """Where it began, without reporting it."""
        return self._look(harm)

    def is_nonfinite(self, tensor: torch.Tensor) -> bool:
        """Known from the recording in nearly all cases, looked at only in doubt."""
        tensor = local_of(tensor)
        if type(tensor).__torch_dispatch__ not in PLAIN:
            return False  # a fake or distributed tensor: there may be nothing to look at
        if tensor.layout is not torch.strided:
            values = _stored_values(tensor)
            return values is not None and has_nonfinite(values)
        if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.is_meta:
            return False
        entry = self.tracer.entry_of(tensor)
        if entry is not None and not (entry.tainted or entry.partial or entry.unseen):
            return False
        return has_nonfinite(tensor.detach())

    def label(self, fallback: str, tensor: torch.Tensor) -> str:
        """The dotted name of a parameter, where a module that ran knows it."""
        return self.modules.parameter_name(tensor) or fallback

    def step_is_over(self) -> None:
        """Forget the step, and the twins of storages that are gone."""
        self.tracer.end_of_step()
        self.shadows.forget()
        self.tracer.shadowing = bool(self.shadows)

    def _look_at_overflow(self, record: Record) -> Evidence | None:
        return self._look(Harm(sink="output", subject="", record=record, step=self.tracer.step))

    def _follow(self, record: Record) -> None:
        self.shadows.follow(record)
        self.tracer.shadowing = bool(self.shadows)


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


def saved_tensors(obj: Any) -> list[torch.Tensor]:
    """What `torch.save` writes of a model or of containers, without running the model's hooks."""
    if isinstance(obj, torch.nn.Module):
        return [*obj.parameters(), *obj.buffers()]
    return tensors_in(obj)


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

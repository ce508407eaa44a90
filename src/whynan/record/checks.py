"""Looks at tensors of a program that is recorded: is this one non-finite, or finite and wrong?"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch

from whynan.model import Evidence, Sink, number
from whynan.record.harm import Harm
from whynan.record.modules import ModuleNames
from whynan.record.records import Record
from whynan.record.shadow import Shadows
from whynan.record.slicing import Slicer
from whynan.record.tracer import Tracer
from whynan.seam.devices import double
from whynan.seam.private import stored_values
from whynan.seam.reading import PLAIN, local_of, readable
from whynan.seam.sites import Frames
from whynan.seam.stats import has_nonfinite

WITNESSES = 4  # of the tensors that went bad together
Named = Iterable[tuple[str, torch.Tensor]]


class Checks:
    """The recording answers nearly always; a tensor is looked into only in doubt."""

    def __init__(self, tracer: Tracer, names: ModuleNames, slicer: Slicer) -> None:
        self.tracer = tracer
        self.names = names
        self.shadows = Shadows(tracer, self._look_at_overflow)
        self._slicer = slicer

    def bad(self, sink: Sink, named: Named, frames: Frames | None, **more: Any) -> list[Harm]:
        """Those of the tensors that are non-finite, as one harm."""
        bad = [(name, tensor) for name, tensor in named if self.is_nonfinite(tensor)]
        if not bad:
            return []
        if len(bad) > WITNESSES:  # one of them is that which went bad first: a gradient, in the
            rest = bad[WITNESSES - 1 :]  # last of several layers that make their own NaN
            bad = [*bad[: WITNESSES - 1], min(rest, key=lambda item: self._went_bad(item[1]))]
        tensors = [local_of(tensor).detach() for _, tensor in bad]
        names = [name for name, _ in bad]
        return [
            Harm(
                sink=sink, subject=names[0], tensors=tensors, names=names, frames=frames,
                step=self.tracer.step, **more,
            )
        ]  # fmt: skip

    def wrong(self, sink: Sink, named: Named, frames: Frames | None, **more: Any) -> list[Harm]:
        """The first finite value that an absorbed overflow made wrong."""
        if not self.shadows:
            return []
        values = [(name, readable(tensor)) for name, tensor in named]
        everything = [(n, v) for n, v in values if v is not None and v.layout is torch.strided]
        for name, tensor in everything:
            found = self.shadows.wrong(tensor)
            if found is not None:
                evidence, right = found
                effect = _effect(sink, name, tensor, right, [t for _, t in everything])
                return [
                    Harm(
                        sink=sink, subject=name, known=evidence, frames=frames, effect=effect,
                        step=self.tracer.step, **more,
                    )
                ]  # fmt: skip
        return []

    def is_nonfinite(self, tensor: torch.Tensor) -> bool:
        """Known from the recording in nearly all cases, looked at only in doubt."""
        tensor = local_of(tensor)
        if type(tensor).__torch_dispatch__ not in PLAIN:
            return False
        if tensor.layout is torch.strided:
            if not (tensor.is_floating_point() or tensor.is_complex()):
                return False
            entry = self.tracer.entry_of(tensor)
            if entry is not None and not (entry.tainted or entry.partial or entry.unseen):
                return False
        values = readable(tensor)
        if values is not None and values.layout is not torch.strided:
            values = _stored_values(values)
        return values is not None and has_nonfinite(values)

    def label(self, fallback: str, tensor: torch.Tensor) -> str:
        """The dotted name of a parameter, where a module that ran knows it."""
        return self.names.parameter_name(tensor) or fallback

    def follow(self, record: Record) -> None:
        """Carry what was absorbed on to what this operation made of it."""
        self.shadows.follow(record)
        self.tracer.shadowing = bool(self.shadows)

    def forget(self) -> None:
        """The step is over: also the twins of storages that are gone."""
        self.shadows.forget()
        self.tracer.shadowing = bool(self.shadows)

    def _went_bad(self, tensor: torch.Tensor) -> float:
        """Which operation first wrote something non-finite to it, as far as is known."""
        entry = self.tracer.entry_of(local_of(tensor))
        writers = entry.writers if entry is not None else ()
        records = [(i, self.tracer.records.get(i)) for i, _ in writers]
        return min((i for i, r in records if r is not None and r.bad), default=math.inf)

    def _look_at_overflow(self, record: Record) -> Evidence | None:
        harm = Harm(sink="output", subject="", record=record, step=self.tracer.step)
        return self._slicer.evidence(harm)


def _effect(
    sink: Sink, name: str, tensor: torch.Tensor, right: torch.Tensor, others: list[torch.Tensor]
) -> str:
    """What an absorbed overflow did, in one clause."""
    actual = tensor.detach()
    if sink == "gradient" and all(not bool(t.detach().any()) for t in others):
        return "every gradient became 0"
    at = int((right - double(actual)).abs().reshape(-1).argmax())
    was, should = actual.reshape(-1)[at].item(), right.reshape(-1)[at].item()
    return f"{name} is {number(was)} where float64 gives {number(should)}"


def _stored_values(tensor: torch.Tensor) -> torch.Tensor | None:
    if tensor.layout is torch.sparse_coo:
        return stored_values(tensor)
    if tensor.layout in (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc):
        return tensor.values()
    return None

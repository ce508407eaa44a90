"""The tensor that `backward()` is called on, and the leaves that it is differentiated for."""

from __future__ import annotations

from collections.abc import MutableMapping
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch
from torch.utils.weak import TensorWeakRef, WeakTensorKeyDictionary

from whynan.record.checks import Checks
from whynan.record.harm import Harm
from whynan.record.storages import Entry, Ref
from whynan.seam.private import has_storage, version_of
from whynan.seam.reading import can_be_read
from whynan.seam.sites import beyond_own, capture, is_torch_file
from whynan.source.positions import argument_at

MAX_NAME = 32


class Gradient(NamedTuple):
    """What was in `.grad`."""

    tensor: TensorWeakRef
    version: int

    @staticmethod
    def of(tensor: torch.Tensor) -> Gradient:
        return Gradient(TensorWeakRef(tensor), _version(tensor))

    def is_still(self, tensor: torch.Tensor | None) -> bool:
        """Whether that is the same one, and nobody has written to it."""
        return tensor is not None and self.tensor() is tensor and self.version == _version(tensor)


class Losses:
    """Looks at the loss before each backward pass, and marks the gradients after it."""

    def __init__(self, checks: Checks) -> None:
        self.checks = checks
        self.tracer = checks.tracer
        self.value: float | None = None  # of the last loss
        self._root: Entry | None = None  # of the last backward pass
        self.uses_scaler = False
        self.keeps = False  # leaves stay alive until the end: a function's own would be gone
        self.saw_all = True  # nothing ran unrecorded since the start
        self._kept: dict[int, torch.Tensor] = {}
        # What each leaf had for a gradient when the first backward pass began that it was met before.
        self._before: MutableMapping[torch.Tensor, Gradient | None] = WeakTensorKeyDictionary()
        self._subjects: dict[tuple[CodeType, int], str] = {}

    def before(self, roots: Any, caller: FrameType) -> list[Harm]:
        """What is bad in the loss; nothing if it is scaled, for then the gradients tell."""
        frames = self.tracer.local.backward_frames = capture(caller)
        self._note_gradients()
        tensors = [t for t in roots if isinstance(t, torch.Tensor) and has_storage(t)]
        self._root = self.tracer.entry_of(tensors[0]) if len(tensors) == 1 else None
        if self.tracer.local.optimizer is None:
            self.value = _value_of(tensors)
        if any(self._is_scaled(t) for t in tensors):
            self.uses_scaler = True
            return []
        named = [(self._subject(beyond_own(caller)), t) for t in tensors]
        return self.checks.bad("loss", named, frames) or self.checks.wrong("loss", named, frames)

    def after(self) -> bool:
        """Mark the gradients; whether one of them is non-finite."""
        self.tracer.local.differentiated = True
        self.tracer.local.differentiated_at = self.tracer.next_index
        self._note_gradients(are_new=True)  # of leaves that were met in the pass itself
        leaves = self.leaves()
        if self.keeps:
            self._kept |= {id(leaf): leaf for leaf in leaves}
        spoilt = False
        for leaf in leaves:
            gradient = leaf.grad
            if gradient is None:
                continue
            spoilt = spoilt or (self._is_new(leaf) and self.checks.is_nonfinite(gradient))
            entry = self.tracer.entry_of(gradient) if gradient.layout is torch.strided else None
            if entry is not None:
                entry.from_grad = True
        return spoilt

    def leaves(self) -> list[torch.Tensor]:
        found = [weak() for weak in self.tracer.local.leaves.values()]
        return [leaf for leaf in found if leaf is not None]

    def spoilt_leaves(self) -> list[Harm]:
        """Leaves that a hand-written update has made non-finite."""
        named = [(self.checks.label("a leaf tensor", leaf), leaf) for leaf in self.leaves()]
        return self.checks.bad("parameter", named, None)

    def left_gradients(self) -> list[Harm]:
        """What is in `.grad` of the leaves when nothing steps with it."""
        if self.tracer.uses_optimizer or self.uses_scaler:
            return []
        if self.tracer.local.differentiated_at < 0:
            return []  # what is there is not of this block
        named = [
            (f"gradient of {self.checks.label('a leaf tensor', leaf)}", leaf.grad)
            for leaf in self.leaves()
            if leaf.grad is not None and self._is_new(leaf) and self.checks.is_nonfinite(leaf.grad)
        ]
        return self.checks.bad("gradient", named, None)

    def returned(self, gradients: Any) -> list[Harm]:
        """What `autograd.grad` gives that is bad."""
        found = gradients if isinstance(gradients, tuple) else ()
        named = [("a gradient", g) for g in found if isinstance(g, torch.Tensor)]
        return self.checks.bad("gradient", named, None)

    def _note_gradients(self, *, are_new: bool = False) -> None:
        for leaf in self.leaves() if self.saw_all else ():
            if leaf not in self._before:
                there = None if are_new else leaf.grad
                self._before[leaf] = None if there is None else Gradient.of(there)

    def _is_new(self, leaf: torch.Tensor) -> bool:
        """Whether its gradient was written since the start, as far as that is known."""
        if not self.saw_all:
            return True
        if leaf not in self._before:
            return False  # met after the last backward pass
        before = self._before[leaf]
        return before is None or not before.is_still(leaf.grad)

    def factor(self) -> float | None:
        """The plain number that the last loss was multiplied by before its backward pass."""
        entry, factor = self._root, 1.0
        while entry is not None and entry.writers:
            record = self.tracer.records.get(entry.writers[-1][0])
            base = record.info.base if record is not None else ""
            args = record.args if record is not None and base in ("mul", "div") else []
            if len(args) != 2 or not isinstance(args[0], Ref) or type(args[1]) not in (int, float):
                break
            factor *= args[1] if base == "mul" else 1 / (args[1] or 1)
            entry = args[0].entry if args[0].entry is not entry else None
        return None if factor == 1 else factor

    def _subject(self, entry: FrameType) -> str:
        """What `backward()` starts from is the loss; `autograd.grad` is given any tensor."""
        user = entry.f_back
        if entry.f_code.co_name != "grad" or user is None:
            return "loss"
        place = (user.f_code, user.f_lasti)
        if place not in self._subjects:
            name = "" if is_torch_file(user.f_code.co_filename) else argument_at(user)
            known = 0 < len(name) <= MAX_NAME
            self._subjects[place] = (
                "loss" if "loss" in name.lower()
                else f"`{name}`, which is differentiated" if known
                else "the tensor that is differentiated"
            )  # fmt: skip
        return self._subjects[place]

    def _is_scaled(self, tensor: torch.Tensor) -> bool:
        entry = self.tracer.entry_of(tensor)
        if entry is None or not entry.writers:
            return False
        record = self.tracer.records.get(entry.writers[-1][0])
        inside = record.frames.inside if record is not None and record.frames else None
        return inside is not None and inside.co_qualname.startswith("GradScaler.scale")


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else version_of(tensor)


def _value_of(tensors: list[torch.Tensor]) -> float | None:
    """Of a loss that is one number, and not a part of one that the ranks have together."""
    loss = tensors[0] if len(tensors) == 1 else None
    if loss is None or loss.numel() != 1 or not loss.is_floating_point():
        return None
    return float(loss.detach()) if can_be_read(loss) else None

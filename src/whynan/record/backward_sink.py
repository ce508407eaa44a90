"""The tensor that `backward()` is called on, and gradients that nobody steps with."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import torch

from whynan.model import HistoryRow
from whynan.positions import argument_at
from whynan.record.checks import Checks
from whynan.record.patches import Patches
from whynan.record.sites import Frames, beyond_own, capture, is_torch_file
from whynan.record.storages import Entry, Ref

HISTORY_ROWS = 512
MAX_NAME = 32
# step, loss, largest gradient, learning rate: a HistoryRow takes long to make
_Row = tuple[int, float | None, float | None, float | None]


class BackwardSink:
    """Looks at the loss before each backward pass, and marks the gradients after it."""

    def __init__(self, checks: Checks) -> None:
        self.checks = checks
        self.tracer = checks.tracer
        self.loss: float | None = None
        self._root: Entry | None = None  # of the last backward pass
        self._rows: deque[_Row] = deque(maxlen=HISTORY_ROWS)
        self.uses_scaler = False
        self.keeps = False  # leaves stay alive until the end: a function's own would be gone
        self._kept: dict[int, torch.Tensor] = {}
        self._subjects: dict[tuple[CodeType, int], str] = {}
        self.on_backward: Callable[[], None] = lambda: None
        self.on_update: Callable[[bool], None] = lambda is_bad: None  # written by hand
        self.on_spoilt_leaf: Callable[[], None] = lambda: None
        self.on_gradients: Callable[[list[torch.Tensor]], None] = lambda leaves: None
        self.tracer.on_hand_update = self._hand_update

    def install(self, patches: Patches) -> None:
        patches.wrap(torch.autograd, "_engine_run_backward", self._wrap_engine)

    def _wrap_engine(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def run_backward(roots: Any, *args: Any, **kwargs: Any) -> Any:
            nested = torch._C._current_autograd_node() is not None
            if not nested:
                caller = sys._getframe(1)
                self.checks.quietly(lambda: self._before(roots, caller))
            result = original(roots, *args, **kwargs)
            if not nested:
                self.checks.quietly(self._after)
            return result

        return run_backward

    def _before(self, roots: Any, caller: FrameType) -> None:
        frames: Frames | None = capture(caller)
        self.on_backward()
        tensors = [t for t in roots if isinstance(t, torch.Tensor) and torch._C._has_storage(t)]
        self._root = self.tracer.entry_of(tensors[0]) if len(tensors) == 1 else None
        if self.tracer.local.optimizer is None:
            self.loss = _value_of(tensors)
        if any(self._is_scaled(t) for t in tensors):
            self.uses_scaler = True  # GradScaler decides at the step
            return
        subject = self._subject(beyond_own(caller))
        named = [(subject, t) for t in tensors]
        tracer = self.tracer
        may_be_dropped = tracer.local.optimizer is None
        self.checks.check("loss", named, frames, may_be_dropped=may_be_dropped)
        self.checks.check_right("loss", named, frames)
        by_hand = not (tracer.uses_optimizer or tracer.will_train)
        if by_hand and tracer.met_bad and any(map(self.checks.is_nonfinite, self._leaves())):
            self.on_spoilt_leaf()

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

    def loss_factor(self) -> float | None:
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

    def _after(self) -> None:
        self.tracer.local.differentiated = True
        self.tracer.local.differentiated_at = self.tracer.next_index
        leaves = self._leaves()
        self.on_gradients(leaves)
        if self.keeps:
            self._kept |= {id(leaf): leaf for leaf in leaves}
        for leaf in leaves:
            if leaf.grad is not None and leaf.grad.layout is torch.strided:
                entry = self.tracer.entry_of(leaf.grad)
                if entry is not None:
                    entry.from_grad = True

    def _leaves(self) -> list[torch.Tensor]:
        found = [weak() for weak in self.tracer.local.leaves.values()]
        return [leaf for leaf in found if leaf is not None]

    def _hand_update(self) -> None:
        """A hand-written update is complete: look at the leaves it wrote."""
        self.note_step(None, None)
        bad = [leaf for leaf in self._leaves() if self.checks.is_nonfinite(leaf)]
        self.checks.quietly(lambda: self.on_update(bool(bad)))
        named = [(self.checks.label("a leaf tensor", leaf), leaf) for leaf in bad]
        self.checks.quietly(lambda: self.checks.check("parameter", named, None))

    def note_step(self, grad_max: float | None, lr: float | None) -> None:
        self._rows.append((self.tracer.step, self.loss, grad_max, lr))

    @property
    def history(self) -> tuple[HistoryRow, ...]:
        return tuple(
            HistoryRow(step=step, loss=loss, grad_max=grad_max, lr=lr)
            for step, loss, grad_max, lr in self._rows
        )

    def finish(self) -> None:
        """Nothing steps with these gradients: they are the program's result."""
        if self.tracer.uses_optimizer or self.uses_scaler:
            return
        named = [
            (f"gradient of {self.checks.label('a leaf tensor', leaf)}", leaf.grad)
            for leaf in self._leaves()
            if leaf.grad is not None and self.checks.is_nonfinite(leaf.grad)
        ]
        self.checks.check("gradient", named, None)


def _value_of(tensors: list[torch.Tensor]) -> float | None:
    if len(tensors) == 1 and tensors[0].numel() == 1 and tensors[0].is_floating_point():
        return float(tensors[0].detach())
    return None

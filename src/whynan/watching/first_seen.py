"""Evidence of a bad value is taken when it is seen first, for what says it may come a thousand turns later.

A loop that updates by hand, or a field, carries what went bad along: nothing is harmed until the last word.
By then the turn in which it began is long over. So the first sight of a stretch of bad values is looked
into at once, within the time that is left for such looks; whatever is seen of the same stretch afterwards has
that for its proof. A finite value from the same place ends the stretch.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from whynan.model import Evidence
from whynan.seam.private import has_storage, storage_id
from whynan.seam.reading import local_of
from whynan.seam.tensors import any_bad
from whynan.watching.body import Body
from whynan.watching.signs import Meant, Noted
from whynan.watching.told import Explained

if TYPE_CHECKING:
    from whynan.watching.watch import Watch

MAX_S = 1.0  # of one look: the program is healthy, perhaps


class FirstSeen:
    """Of losses in a loop without an optimizer, and of what is read."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._loss: torch.Tensor | None = None  # the last one, if it was bad

    # ---- losses ---------------------------------------------------------------------------

    def note_loss(self, roots: Iterable[Any], proof: Explained | None) -> None:
        """One is bad, or its gradients are; `proof` is what is known of the stretch."""
        tensors = [local_of(t) for t in roots if isinstance(t, torch.Tensor)]
        self._loss = tensors[0].detach() if len(tensors) == 1 and has_storage(tensors[0]) else None
        self._watch.since = proof

    def finite_loss(self) -> None:
        self._loss = self._watch.since = None

    def of_backward(self, caller: FrameType | None, losses: list[float]) -> Explained | None:
        """Before the loop updates its leaves, for then it is too late."""
        watch = self._watch
        if caller is None or watch.told.has_begun:
            return None
        if not watch.spending.may_go_on():
            return watch.since if watch.carried.is_bad() else None
        body = Body(watch, is_certain=False)
        with watch.spending.counted():
            found = body.of_turn_before(caller) if watch.since is None else None
            found = found or body.of_backward(caller, losses)
        if found is not None:
            return Explained(found, "body")
        return watch.since if body.came_in else None

    # ---- what a model was given --------------------------------------------------------------

    def of_call(self, frame: FrameType) -> Explained | None:
        """Made between two calls of it. A program that trains is not repeated in its course for a look:
        its steps tell."""
        if self._watch.progress.uses_optimizer:
            return None
        body = Body(self._watch, is_certain=False, end_s=time.monotonic() + MAX_S)
        with self._watch.spending.counted():
            found = body.of_turn_before(frame)
        return None if found is None else Explained(found, "body")

    # ---- what is read ---------------------------------------------------------------------

    def of_read(
        self, tensor: torch.Tensor, frame: FrameType, *, is_first: bool
    ) -> Explained | Noted | Meant | None:
        watch = self._watch
        if watch.since is not None and self._is_the_loss(tensor):
            return watch.since
        noted = Body(watch).note_read(tensor, frame)
        looks = is_first and not watch.progress.uses_optimizer and watch.spending.may_go_on()
        if noted is None or not looks:
            return noted
        body = Body(watch, is_certain=False, end_s=time.monotonic() + MAX_S)
        with watch.spending.counted():
            found = body.of_turn_before(frame) or body.of_read(tensor, frame)
        if found is None:
            return watch.since if body.came_in and watch.since is not None else noted
        return Explained(found, "body") if isinstance(found, Evidence) else found

    def _is_the_loss(self, tensor: torch.Tensor) -> bool:
        tensor, loss = local_of(tensor), self._loss
        return loss is not None and has_storage(tensor) and storage_id(tensor) == storage_id(loss)


def is_bad(given: Any) -> bool:
    """What `autograd.grad` has returned: in a healthy program, too, so with one wait for a device."""
    tensors = given if isinstance(given, tuple) else ()
    return any_bad(t for t in tensors if isinstance(t, torch.Tensor))

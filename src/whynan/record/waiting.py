"""Harm that the program may still deal with itself: a step that it leaves out, a value it tests."""

from __future__ import annotations

from collections.abc import Callable

from whynan.model import Evidence

MAX_TESTED = 20


def is_scaled(evidence: Evidence) -> bool:
    """Nothing but the multiplication by a loss scale overflowed: the finite gradients are right."""
    origin = evidence.origin
    products = origin.op.startswith(("aten.mul.", "aten.div."))
    return products and not evidence.path and origin.phase == "forward"


class Waiting:
    """A bad loss counts when a step is taken with its gradients, and not when they are dropped
    before. A value that the program tests for being finite counts if that ends the program."""

    def __init__(self, accept: Callable[[Evidence], None]) -> None:
        self._accept = accept
        self._losses: list[Evidence] = []
        self.is_last = False  # the last backward pass began at one of them
        self.spoilt = False  # and left non-finite gradients behind
        self._tested: list[Evidence] = []

    def add_loss(self, evidence: Evidence) -> None:
        self._losses.append(evidence)
        self.is_last = True

    @property
    def is_full(self) -> bool:
        """Whether enough tested values are known since the last step."""
        return len(self._tested) >= MAX_TESTED

    def add_tested(self, evidence: Evidence) -> None:
        if not self.is_full:
            self._tested.append(evidence)

    def backward_begins(self) -> None:
        self.is_last = self.spoilt = False

    def step_begins(self, gradients_are_bad: bool) -> None:
        """Finite gradients that were not so before, or are a later pass's: the program saw to it."""
        self._tested.clear()
        if not gradients_are_bad:
            is_cleaned = self.spoilt or not self.is_last
            self._losses = [] if is_cleaned else [e for e in self._losses if not is_scaled(e)]
        self.settle()

    def settle(self) -> None:
        """Nobody dropped the gradients: now their loss counts."""
        waiting, self._losses = self._losses, []
        for evidence in waiting:
            self._accept(evidence)

    def settle_tested(self, error: BaseException) -> None:
        """The program ended by this error: the test was not to go on."""
        if isinstance(error, Exception) or (
            isinstance(error, SystemExit) and error.code not in (None, 0)
        ):
            for evidence in self._tested:
                self._accept(evidence)

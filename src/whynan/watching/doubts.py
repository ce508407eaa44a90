"""What the guard is not sure of: kept until the step, a recorded step or the end settles it."""

from __future__ import annotations

from collections.abc import Callable

from whynan.record.sites import Frames
from whynan.watching.guard import Seen

MAX_RECORDED = 8


class Doubts:
    """At most one of them is worth a second run."""

    def __init__(self, has_judged: Callable[[Frames | None], bool]) -> None:
        self.ask: Callable[[Seen], None] = lambda seen: None  # for a second opinion
        self.steps_to_record: set[int] = set()
        self._has_judged = has_judged
        self._open: Seen | None = None
        self._late: Seen | None = None  # settled when the program ends
        self._tested: Seen | None = None  # by the program itself, since the last step
        self._is_settled = False

    def add(self, seen: Seen) -> None:
        """Not certainly harm: one try to have it confirmed."""
        if self._is_settled:
            return
        nan = seen.value is not None and seen.value != seen.value
        if nan or seen.sink == "gradient":
            self._open = self._open or seen  # the step itself may settle it
            return
        if seen.sink in ("observed", "parameter"):
            self._late = self._late or seen
        if len(self.steps_to_record) < MAX_RECORDED:
            self.steps_to_record.add(seen.step + 1)  # if it lasts, the tracer will judge it

    def add_tested(self, seen: Seen) -> None:
        """The program tests this value: what it does then tells whether it could go on. The output
        of a model just before is what the value was made of."""
        self._tested = seen
        if self._open is not None and self._open.sink == "output":
            self._open = None

    def drop(self) -> None:
        """There is certain harm."""
        self._open = None

    def settle(self) -> None:
        """The step is over and did not settle it: ask, once."""
        seen, self._open = self._open, None
        if seen is not None and not self._is_settled:
            self._is_settled = True
            self.ask(seen)

    def step_is_taken(self) -> None:
        self._tested = None
        self.settle()

    def end(self, error: BaseException | None) -> None:
        """The program is over."""
        if isinstance(error, SystemExit) and error.code not in (None, 0):
            self._open = self._open or self._tested
        # An infinity that was read where the recorder never saw one.
        if self._late is not None and not self._has_judged(self._late.frames):
            self._open = self._open or self._late
        self.settle()

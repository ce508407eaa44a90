"""Back to the start of a step: buffers, random states, batches and schedules as they were."""

from __future__ import annotations

from collections import deque
from typing import Any

from whynan.seam.patches import Patches
from whynan.seam.randomness import Randomness, Saved
from whynan.seam.schedules import Schedules
from whynan.watching.batches import Batches
from whynan.watching.buffers import Buffers

STEPS_BACK = 8  # a turn of the loop may make several, with as many optimizers


class Rewind:
    """Knows what a step started from; its buffers and batches hear of it all the time."""

    def __init__(self) -> None:
        self.buffers = Buffers()
        self.randomness = Randomness()
        self.batches = Batches(self.randomness)
        self.schedules = Schedules()
        self.start_states: Saved | None = None
        self._earlier: deque[Saved | None] = deque(maxlen=STEPS_BACK)  # tops of steps that are over

    def install(self, patches: Patches) -> None:
        self.randomness.install(patches)
        patches.on_restore(self.schedules.go_on)

    def optimizer_made(self, optimizer: Any) -> None:
        """The model exists, nothing has run: the first step's start."""
        if self.start_states is None:
            self.buffers.save()
            self.start_states = self.randomness.save()

    def save(self) -> None:
        """What the next step starts from."""
        self.buffers.save()
        if not self.batches.ever:
            self.start_states = self.randomness.save()

    def save_at_border(self) -> None:
        """A step is over, and the next one begins here, unless a loader gives it a batch."""
        if not self.batches.ever:
            self.save()

    def save_at_fetch(self) -> None:
        """It begins with its first batch, after all that follows an update: averages, evaluation."""
        if not self.batches.given:
            self.save()

    def step_left_out(self) -> None:
        """The scaler skipped this step: the next one begins with batches of its own."""
        self.batches.begin_step()
        self.save_at_border()

    def states_at(self, back: int) -> Saved | None:
        """Random states where the step began that was so many steps ago."""
        if back:
            return self._earlier[-back] if back <= len(self._earlier) else None
        given = self.batches.given
        if given:
            return given[-1].after
        return None if self.batches.ever else self.start_states

    def begin_step(self) -> None:
        self._earlier.append(self.states_at(0))
        self.schedules.go_on()
        self.batches.begin_step()

    def is_possible(self) -> bool:
        return self.batches.can_repeat()

    def is_certain(self) -> bool:
        """Whether the loop will do the same step again, not perhaps the next one."""
        return self.batches.ever and self.is_possible()

    def to_the_top(self, back: int) -> None:
        """Of the loop's turn, for statements that are executed once more."""
        self.buffers.restore()
        states = self.states_at(back)
        if states is not None:
            self.randomness.restore(states)
        self.schedules.stand_still()

    def back(self) -> None:
        """The next step of the loop is the last one once more."""
        self.buffers.restore()
        if not self.batches.ever and self.start_states is not None:
            self.randomness.restore(self.start_states)
        self.batches.repeat()
        self.schedules.stand_still()

    def stop(self) -> None:
        """No more of it; the loop goes on."""
        self.batches.stop_repeating()
        self.schedules.go_on()

    def drop(self) -> None:
        """As if the batch had never been there; until the next one, schedules stand still."""
        self.buffers.restore()
        self.batches.drop()
        self.batches.begin_step()
        self.schedules.stand_still()

"""What a run learns of its program, from the watch or the ranks of a job, until it is told."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from whynan import voice
from whynan.arrays.numpy_watch import NumpyWatch
from whynan.errors import StopRun
from whynan.model import Evidence
from whynan.recording import EAGERLY, ONLY_EAGER
from whynan.run.comparing import as_compiled
from whynan.run.libraries import Libraries
from whynan.run.outputs import RunOptions, fill_capsule
from whynan.run.program import Program
from whynan.run.rerun import Command, is_second_run, look_elsewhere, report_progress
from whynan.run.telling import Telling
from whynan.run.waking import wake_main_thread
from whynan.seam.hush import same_random

if TYPE_CHECKING:
    from whynan.harm.ledger import Sign
    from whynan.ranks.lockstep import Lockstep
    from whynan.watching.watch import Watch


class Findings:
    """Keeps what is known, and leaves the program where it is to be left."""

    def __init__(self, program: Program, options: RunOptions) -> None:
        self.watch: Watch | None = None
        self.lockstep: Lockstep | None = None  # with the other ranks of the job
        options = options.from_here()
        self.telling = Telling(program, options)
        self.numpy = NumpyWatch()
        self.libraries = Libraries(os.devnull)
        self.command = Command(
            target=program.target, args=program.args, is_module=program.is_module, cwd=os.getcwd()
        )
        self.is_ending = False
        self.has_left = False  # the program is over
        self.is_enough = False  # as the options ask
        self.options = options
        self._capsule = options.capsule  # until it is full
        self._begin_s = time.monotonic()
        self._extra: tuple[Evidence, ...] = ()  # not from this process's recorder
        self._notes: list[str] = []
        self._open: Sign | None = None  # harm that is still to be looked at elsewhere
        self._is_second = is_second_run()
        self._tell_progress = report_progress()

    # ---- what it is told while the program runs -----------------------------------------------

    def found(self, evidence: Evidence, how: str) -> None:
        """Harm whose origin was seen. The report is drawn when the program has been left; one that goes
        on is not left for a long time, so that it is told at once."""
        self.telling.reproduced = how
        self.take(evidence)
        self._fill_capsule()
        if self.options.on_anomaly == "stop":
            self.leave()
        self._report_now()

    def unexplained(self, sign: Sign) -> None:
        """The guard saw harm, and this process cannot show how it came about: another one may."""
        self._open = sign
        if self.options.on_anomaly == "stop":
            self._fill_capsule()
            if not self.is_ending:
                self.leave()
            return
        self.look_elsewhere()
        self._fill_capsule()
        self._report_now()

    def leave(self) -> NoReturn:
        self.has_left = True
        wake_main_thread()
        raise StopRun

    def stepped(self, step: int) -> None:
        if self.draws:
            self.telling.outputs.draw(step)
        self._tell_progress(step)
        limit, enough = self.options.max_steps, self.options.enough
        if limit is not None and step >= limit:
            self.is_enough = True
        elif enough is not None and step >= enough[0] and self.lockstep is None:  # clocks differ
            self.is_enough = time.monotonic() - self._begin_s > enough[1]
        if self.is_enough:
            self.leave()

    def failed(self, error: BaseException) -> None:
        voice.say(f"stepped aside after an error of its own, the script goes on: {error!r}")

    def say(self, text: str) -> None:
        voice.say(text)

    def keep_step(self) -> None:
        """Before the ranks of a job leave together."""
        self.take()
        self._fill_capsule()

    # ---- what is known ------------------------------------------------------------------------

    @property
    def has_harm(self) -> bool:
        return bool(self.telling.recording.evidence)

    @property
    def draws(self) -> bool:
        """Of several ranks, the first one."""
        return self.lockstep is None or self.lockstep.job.rank == 0

    def show(self) -> None:
        self.telling.show(fixes_follow=self.options.fixes_follow and self.lockstep is None)

    def take(self, newest: Evidence | None = None) -> None:
        """Collect what is known so far; if that fails, at least what was found just now."""
        known = self.telling.recording
        try:
            recording = self.watch.recording() if self.watch is not None else known
        except Exception as error:
            self.failed(error)
            found = (*known.evidence, *([newest] if newest is not None else []))
            recording = replace(known, evidence=found)
        notes = (*recording.notes, *[n for n in self._notes if n not in recording.notes])
        evidence = tuple(map(self.numpy.cross, self._extra or recording.evidence))
        self.telling.recording = replace(recording, evidence=evidence, notes=notes)

    def keep(self) -> None:
        """What another watch is not to forget."""
        self.take()
        self._extra = self.telling.recording.evidence

    def look_elsewhere(self) -> None:
        """At harm that this process could not explain."""
        sign, self._open = self._open, None
        if sign is None:
            self._compare()
            return
        from whynan.watching.signs import unseen

        again = look_elsewhere(
            sign, self.command, self.options,
            is_second=self._is_second, took_s=time.monotonic() - self._begin_s,
        )  # fmt: skip
        if again.is_right:
            voice.say("it is the right answer: no harm")
            self.take()
            return
        self._notes += [note for note in again.notes if note not in self._notes]
        climbed = self.watch.climb(unseen(sign, "")) if self.watch is not None else None
        if climbed is not None:
            self._extra = (climbed,)
        elif again.evidence:
            self._extra, self.telling.reproduced = again.evidence, "rerun"
        else:
            self._extra, self.telling.reproduced = (unseen(sign, again.why),), "no"
            if self.watch is not None:
                self.watch.rewind.batches.keep_last(self.options.save_batch)
        self.take()

    def _compare(self) -> None:
        """What was recorded in eager mode, with the program as it is: compiled."""
        found, is_asked = self.telling.recording.evidence, self.options.climb is not None
        if is_asked and not found and self.watch is not None and self.watch.is_only_eager():
            self._notes.append(ONLY_EAGER)
            self.take()
        asked = self.options.mode == "trace" and self.options.is_shown and not self._is_second
        if not asked or not found or EAGERLY not in self.telling.recording.notes:
            return
        took_s, alone = time.monotonic() - self._begin_s, self.lockstep is None
        as_it_is = as_compiled(found[0], self.command, self.options, took_s) if alone else "unseen"
        self._extra = (replace(found[0], as_compiled=as_it_is), *found[1:])
        self.take()

    def hear_the_ranks(self, error: BaseException | None) -> bool:
        """Whether the job came to harm; only one of its processes tells of it."""
        telling = self.telling
        if self.lockstep is None:
            return self.has_harm
        try:
            telling.recording, speaks = self.lockstep.conclude(telling.recording, error)
        except Exception as own:
            self.failed(own)
            return self.has_harm
        telling.is_silent = not speaks
        telling.reproduced = self.lockstep.how
        return self.lockstep.harmed

    def _report_now(self) -> None:
        """At its end the program's own traceback comes first."""
        if not self.is_ending:
            with same_random(), self.libraries.in_use():
                self.show()
                self.telling.write("anomaly", is_last=False)

    def _fill_capsule(self) -> None:
        """The first harm's step, so that it can be repeated on another machine."""
        if self.watch is None or self._capsule is None:
            return
        folder, self._capsule = self._capsule, None
        if self.lockstep is not None:
            folder = folder / f"rank-{self.lockstep.job.rank}"
        command, telling = [self.command.target, *self.command.args], self.telling
        fill_capsule(
            folder,
            self.watch,
            command,
            lambda: telling.with_changes().of(telling.diagnosis("anomaly")),
        )

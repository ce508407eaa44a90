"""`whynan run`: one program, watched from its first operation to its exit code."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from whynan import voice
from whynan.arrays.numpy_watch import NumpyWatch
from whynan.errors import StopRun, UsageError
from whynan.model import Diagnosis, Evidence
from whynan.model import Outcome as Verdict
from whynan.ranks import launched
from whynan.recording import Recording
from whynan.run import program as launch
from whynan.run.children import (
    ABSENT,
    HARM,
    TOLD,
    Children,
    leave_word,
    optimizers_so_far,
    when_joining,
)
from whynan.run.libraries import Libraries
from whynan.run.outputs import RunOptions
from whynan.run.presence import SECOND_TIME, Presence, forget_torch, leave_in_silence
from whynan.run.rerun import Command, look_again, report_progress
from whynan.run.telling import Telling
from whynan.seam.hush import same_random
from whynan.seam.patches import Patches
from whynan.seam.supported import INSTALL

if TYPE_CHECKING:
    from whynan.harm.ledger import Sign
    from whynan.ranks.lockstep import Lockstep
    from whynan.watching.watch import Watch


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a run: `diagnosis` where harm was found."""

    code: int
    recording: Recording
    diagnosis: Diagnosis | None


class Run:
    """One program under watch. `go` runs it; the report is drawn when it has been left."""

    def __init__(self, program: launch.Program, options: RunOptions) -> None:
        self.program = program
        self.options = options
        self.watch: Watch | None = None
        self.lockstep: Lockstep | None = None  # with the other ranks of the job
        self.libraries = Libraries(os.devnull)
        self.error: BaseException | None = None  # of a process of the program's, for it to raise
        self._command = Command(
            target=program.target, args=program.args, is_module=program.is_module, cwd=os.getcwd()
        )
        batch = options.save_batch  # absolute: the program may change the folder
        self._save_batch = batch.absolute() if batch is not None else None
        self._pid = os.getpid()
        self._begin_s = time.monotonic()
        self._stopped_by_limit = False
        self._ending = False
        self._leaves: SystemExit | None = None  # of the program's own hook for exceptions
        self._extra: tuple[Evidence, ...] = ()  # not from this process's recorder
        self._notes: list[str] = []
        self._open: Sign | None = None  # harm that is still to be looked at elsewhere
        self._tell_progress = report_progress()
        self._telling = Telling(program, options, self.say)
        self._numpy = NumpyWatch()
        self._presence = Presence(self._torch_has_come, self._begin_again, self.say)
        self._patches = Patches()
        self._children = Children(program, options, self._take_off)
        self._starter: Path | None = None  # in a process that the program started: word for it
        self._stop_waiting: Callable[[], None] | None = None

    def go(self) -> Outcome:
        """Run it."""
        self._telling.outputs.check()
        try:
            self._presence.wait()
            run = launch.prepare(self.program)
        except UsageError:
            self._presence.end()
            raise
        except BaseException as failure:  # a package's own __init__ failed
            return self._outcome(self._end(failure))
        for name in [n for n in sys.modules if n.split(".")[0] == "click"]:
            del sys.modules[name]  # the program may have a module of that name
        self.libraries = Libraries(sys.path[0])
        self._numpy.start()
        if not self._is_rank:
            self._children.install()  # it may leave torch to the processes that it starts
        return self._outcome(self._call(run))

    def attend(self, work: Callable[[], object], folder: Path) -> int:
        """The same for what a process does that the program started, once it joins a job."""
        self._starter, self._telling.is_silent = folder, True
        return self._call(work)

    def _call(self, run: Callable[[], object]) -> int:
        original_exit = os._exit
        os._exit = self._hard_exit(original_exit)  # type: ignore[assignment]  # never returns
        error: BaseException | None = None
        try:
            self._presence.wait()
            run()
            launch.wait_for_threads()
            self._children.wait()
        except BaseException as raised:
            error = raised
        finally:
            if self._stop_waiting is not None:
                self._stop_waiting()
            os._exit = original_exit
        return self._end(error)

    def _outcome(self, code: int) -> Outcome:
        """The working directory is again the first one, which the paths in it refer to."""
        recording, diagnosis = self._telling.recording, None
        if recording.evidence:
            try:
                os.chdir(self._command.cwd)
                diagnosis = self._telling.diagnosis("anomaly")
            except Exception as error:
                self.failed(error)
        return Outcome(code=code, recording=recording, diagnosis=diagnosis)

    # ---- the beginning ------------------------------------------------------------------

    @property
    def _is_rank(self) -> bool:
        return launched() or self._starter is not None

    def _torch_has_come(self, late: bool) -> None:
        """Called right after the program imported torch, or later if that went unseen."""
        try:
            if self._starter is not None:
                self._stop_waiting = when_joining(self._join_job)
            else:
                self._start(late)
        except Exception as error:
            self._cannot_watch(error)

    def _join_job(self) -> None:
        try:
            self._numpy.start()
            self._start(late=True)
        except Exception as error:
            self._cannot_watch(error)

    def _start(self, late: bool) -> None:
        from whynan.seam.values import SAFETENSORS, is_being_imported
        from whynan.watching.plan import LIVE_STEPS, Plan
        from whynan.watching.watch import Watch

        options = self.options
        live = LIVE_STEPS if options.live_steps is None else options.live_steps
        always = options.mode == "trace" and options.trace_from is None
        plan = Plan(
            policy=options.on_anomaly,
            traces=options.mode != "guard",
            live_steps=sys.maxsize if always else live,
            armed_from=options.trace_from,
            always_live=always,
            save_batch=self._save_batch,
        )
        if self._is_rank:
            from whynan.ranks.lockstep import Lockstep

            self.lockstep = Lockstep(plan, self)
            watch = self.lockstep.watch
        else:
            watch = Watch(plan, self)
        self.watch = watch
        watch.start(optimizers=optimizers_so_far() if late else [])
        if self.lockstep is not None:
            self.lockstep.start()
        if threading.current_thread() is not threading.main_thread():
            self._patches.wrap(threading, "excepthook", leave_in_silence)
            watch.recorder.start_in_main_thread_too()
        self._telling.outputs.open_board(watch)
        if is_being_imported(SAFETENSORS):
            self._presence.after(SAFETENSORS, watch.know_safetensors)

    def _cannot_watch(self, error: Exception) -> None:
        """Half a watch is none: what there is of it is taken off."""
        self._presence.lost(f"whynan failed with {error!r}")
        watch, self.watch = self.watch, None
        self.failed(error)
        if watch is not None:
            watch.abandon()

    def _begin_again(self) -> None:
        """Torch's code has run a second time: its types are new objects, so all that knows the old
        ones is made anew. Several ranks cannot, as they have joined already."""
        watch = self.watch
        if watch is None:
            return
        if self._is_rank:
            self._presence.lost(SECOND_TIME)
            return
        self._take()
        self._extra = self._telling.recording.evidence
        try:
            watch.abandon()
            self.watch = None
            forget_torch()
            self._start(late=True)
        except Exception as error:
            self._cannot_watch(error)

    def _take_off(self) -> None:
        """In a forked process, which has hooks and a recorder of its own."""
        if self.watch is not None:
            self.watch.abandon()
        self._numpy.stop()

    # ---- what it is told while it runs ----------------------------------------------------

    def found(self, evidence: Evidence, how: str) -> None:
        """Harm whose origin was seen. The report is drawn when the program has been left; one that goes
        on is not left for a long time, so that it is told at once."""
        self._telling.reproduced = how
        self._take(evidence)
        self._fill_capsule()
        if self.options.on_anomaly == "stop":
            self.leave()
        self._report_now()

    def unexplained(self, sign: Sign) -> None:
        """The guard saw harm, and this process cannot show how it came about: another one may."""
        self._open = sign
        if self.options.on_anomaly == "stop":
            self._fill_capsule()
            if not self._ending:
                self.leave()
            return
        self._look_elsewhere()
        self._fill_capsule()
        self._report_now()

    def leave(self) -> NoReturn:
        raise StopRun

    def stepped(self, step: int) -> None:
        if self._draws:
            self._telling.outputs.draw(step)
        self._tell_progress(step)
        if self._is_enough(step):
            self._stopped_by_limit = True
            raise StopRun

    def failed(self, error: BaseException) -> None:
        self.say(f"stepped aside after an error of its own, the script goes on: {error!r}")

    @staticmethod
    def say(text: str) -> None:
        voice.say(text)

    def keep_step(self) -> None:
        """Before the ranks of a job leave together."""
        self._take()
        self._fill_capsule()

    def _report_now(self) -> None:
        """At its end the program's own traceback comes first."""
        if not self._ending:
            with same_random(), self.libraries.in_use():
                self._show()
                self._telling.write("anomaly", is_last=False)

    def _is_enough(self, step: int) -> bool:
        options = self.options
        if options.max_steps is not None and step >= options.max_steps:
            return True
        if options.enough is None or step < options.enough[0]:
            return False
        return time.monotonic() - self._begin_s > options.enough[1]

    @property
    def _draws(self) -> bool:
        """Of several ranks, the first one."""
        return self.lockstep is None or self.lockstep.job.rank == 0

    def _show(self) -> None:
        self._telling.show(fixes_follow=self.options.fixes_follow and self.lockstep is None)

    def _fill_capsule(self) -> None:
        rank = self.lockstep.job.rank if self.lockstep is not None else None
        self._telling.fill_capsule(self.watch, rank)

    def _take(self, newest: Evidence | None = None) -> None:
        """Collect what is known so far; if that fails, at least what was found just now."""
        telling = self._telling
        try:
            recording = self.watch.recording() if self.watch is not None else telling.recording
        except Exception as error:
            self.failed(error)
            known = telling.recording
            found = (*known.evidence, *([newest] if newest is not None else []))
            recording = replace(known, evidence=found)
        notes = (*recording.notes, *[n for n in self._notes if n not in recording.notes])
        evidence = tuple(map(self._numpy.cross, self._extra or recording.evidence))
        telling.recording = replace(recording, evidence=evidence, notes=notes)

    # ---- a second look ----------------------------------------------------------------------

    def _look_elsewhere(self) -> None:
        sign, self._open = self._open, None
        if sign is None:
            return
        from whynan.watching.signs import unseen

        try:
            found, why = self._explain_elsewhere(sign)
        except Exception as error:
            found, why = (), f"the script could not be run again: {error!r}"
        if found:
            self._extra, self._telling.reproduced = found, "rerun"
        else:
            self._extra, self._telling.reproduced = (unseen(sign, why),), "no"
            if self.watch is not None:
                self.watch.rewind.batches.keep_last(self._save_batch)
        self._take()

    def _explain_elsewhere(self, sign: Sign) -> tuple[tuple[Evidence, ...], str]:
        if self.options.mode == "guard":
            return (), "--mode guard only looks; run again without it to have the step recorded"
        if self.options.on_anomaly != "stop":
            return (), (
                "the step could not be repeated in place; with --on-anomaly stop the script "
                "is run again to record it"
            )
        again = look_again(self._command, sign, self._save_batch, self.say)
        self._notes += [note for note in again.notes if note not in self._notes]
        return again.evidence, again.why

    # ---- the end ------------------------------------------------------------------------------

    def _hard_exit(self, original: Callable[[int], NoReturn]) -> Callable[[int], None]:
        """`os._exit` skips everything; save the report first."""

        def leave(code: int) -> None:
            if os.getpid() == self._pid:
                self._ending = True
                try:
                    self._last_look(None)
                    harmed = self._hear_the_ranks(None)
                    absent = not harmed and self._is_absent()
                    code = 3 if harmed else 2 if absent else code
                    if not absent:
                        self._write("anomaly" if harmed else "clean")
                    self._release(harmed)
                except Exception as error:
                    self.failed(error)
            original(code)

        return leave

    def _end(self, error: BaseException | None) -> int:
        self._ending = True
        telling = self._telling
        stopped = isinstance(error, StopRun) or self._children.explain(error)
        expected = stopped or isinstance(error, (SystemExit, KeyboardInterrupt))
        crash = None if expected else error
        watched = self.watch is not None
        if crash is not None and watched and self._starter is None:
            self._print_traceback(crash)  # a second run may take long
        self._stop_watching(error)
        harmed = self._hear_the_ranks(crash) or self._children.harmed
        telling.is_silent |= self._children.told and not telling.recording.evidence
        if crash is not None and (harmed if self._starter is not None else not watched):
            self._print_traceback(crash)
        absent = not harmed and self._is_absent()
        with self.libraries.in_use():
            self._show()
            if not absent:
                self._write("anomaly" if harmed else "crashed" if crash is not None else "clean")
        self._last_remarks(error, harmed)
        if harmed:
            return 3
        if self._starter is not None:
            self.error = None if stopped else error
            return 2 if self._presence.is_refused else 0
        if isinstance(error, KeyboardInterrupt):
            self._print_traceback(error)
            launch.die_of_interrupt()
        if absent:
            return 2
        if isinstance(error, SystemExit):
            raise error
        if self._leaves is not None:
            raise self._leaves
        return 1 if crash is not None else 0

    def _stop_watching(self, error: BaseException | None) -> None:
        """A last look; whatever it needs to see elsewhere is looked at now."""
        self._presence.end()
        self._last_look(error)
        with self.libraries.in_use():
            self._look_elsewhere()
        self._numpy.stop()
        self._patches.restore()
        telling = self._telling
        if not telling.recording.evidence:
            telling.recording = replace(telling.recording, evidence=self._numpy.harms(error))

    def _last_look(self, error: BaseException | None) -> None:
        if self.watch is None:
            return
        try:
            self.watch.stop(error)
        except StopRun:
            pass
        except Exception as own:
            self.failed(own)
        self._take()

    def _hear_the_ranks(self, error: BaseException | None) -> bool:
        """Whether the job came to harm; only one of its processes tells of it."""
        telling = self._telling
        if self.lockstep is None:
            return bool(telling.recording.evidence)
        try:
            telling.recording, speaks = self.lockstep.conclude(telling.recording, error)
        except Exception as own:
            self.failed(own)
            return bool(telling.recording.evidence)
        telling.is_silent = not speaks
        telling.reproduced = self.lockstep.how
        return self.lockstep.harmed

    def _is_absent(self) -> bool:
        """Whether torch was used and nothing was watched: then silence is no proof of health."""
        if os.getpid() != self._pid:
            return False
        why = self._presence.absence()
        if why is not None:
            self.say(f"torch was used, but not watched to the end: {why}")
        absent = why is not None or self._presence.is_refused or self._children.absent
        if absent and self._starter is not None:
            leave_word(self._starter, ABSENT)
        return absent

    def _last_remarks(self, error: BaseException | None, harmed: bool) -> None:
        telling = self._telling
        if isinstance(error, ModuleNotFoundError) and error.name == "torch":
            self.say(f"PyTorch is not installed here; {INSTALL}")
        if self._stopped_by_limit and not harmed:
            self.say(f"no harm in {telling.recording.steps} steps; stopped as --max-steps asked")
        self._release(harmed)
        self._children.close()
        self._say_what_was_skipped()
        if harmed and not telling.is_silent:
            for note in telling.recording.notes:
                self.say(note)

    def _say_what_was_skipped(self) -> None:
        if self.watch is None:
            return
        skipped = self.watch.told.skipped
        if skipped:
            steps = ", ".join(map(str, skipped[:20])) + (", ..." if len(skipped) > 20 else "")
            self.say(f"skipped {len(skipped)} update(s), at step {steps}")
        if self.watch.told.later:
            self.say(f"{self.watch.told.later} more steps were harmful after that one")

    def _print_traceback(self, error: BaseException) -> None:
        try:
            launch.print_traceback(error)
        except SystemExit as leaves:
            self._leaves = leaves

    def _write(self, outcome: Verdict) -> None:
        """For the last time."""
        if self._draws:
            self._telling.outputs.finish_board()
        self._telling.write(outcome, is_last=True)

    def _release(self, harmed: bool) -> None:
        """All is written: whoever waits for this process may go on."""
        if self.lockstep is not None:
            if self._starter is not None:
                told = not self._telling.is_silent
                leave_word(self._starter, *[HARM] * harmed, *[TOLD] * told)
            self.lockstep.release()

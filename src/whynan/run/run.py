"""`whynan run`: one program, watched from its first operation to its exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from whynan import voice
from whynan.errors import StopRun, UsageError
from whynan.explain.story import no_harm
from whynan.model import Diagnosis
from whynan.model import Outcome as Verdict
from whynan.recording import Recording
from whynan.run import program as launch
from whynan.run.beginning import Beginning
from whynan.run.children import ABSENT, HARM, TOLD, Children, leave_word
from whynan.run.findings import Findings
from whynan.run.libraries import Libraries
from whynan.run.outputs import Outputs, RunOptions
from whynan.run.rank_programs import let_go_first, starter_of_this
from whynan.seam.supported import NOT_INSTALLED, is_missing


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a run: `diagnosis` where harm was found."""

    code: int
    recording: Recording
    diagnosis: Diagnosis | None


class Run:
    """One program under watch. `go` runs it; the report is drawn when it has been left."""

    def __init__(
        self, program: launch.Program, options: RunOptions, starter: Path | None = None
    ) -> None:
        self.findings = Findings(program, options)
        self.error: BaseException | None = None  # of a process of the program's, for it to raise
        self._program, self._options = program, options
        self._getpid = os.getpid  # the program may replace it
        self._pid = os.getpid()
        self._starter = starter  # in a process that the program started: where word is left for it
        self._word_to = starter or starter_of_this()  # the same, in a program that is a rank
        self._beginning = Beginning(self.findings, starter=starter)
        self._children = Children(program, options, self._beginning.take_off)
        self._unwatched: str | None = None  # a remark on processes that trained
        self._leaves: SystemExit | None = None  # of the program's own hook for exceptions

    def go(self) -> Outcome:
        """Run it."""
        findings, presence = self.findings, self._beginning.presence
        Outputs(self._options).check()
        try:
            presence.wait()
            run = launch.prepare(self._program)
        except UsageError:
            presence.end()
            raise
        except BaseException as failure:  # a package's own __init__ failed
            return self._outcome(self._end(failure))
        for name in [n for n in sys.modules if n.split(".")[0] == "click"]:
            del sys.modules[name]  # the program may have a module of that name
        findings.libraries = Libraries(sys.path[0])
        findings.numpy.start()
        if not self._beginning.is_rank:
            self._children.install()  # it may leave torch to the processes that it starts
        return self._outcome(self._call(run))

    def attend(self, work: Callable[[], object]) -> int:
        """The same for what a process does that the program started, once it joins a job."""
        self.findings.telling.is_silent = True
        return self._call(work)

    def _call(self, run: Callable[[], object]) -> int:
        original_exit = os._exit
        os._exit = self._hard_exit(original_exit)  # type: ignore[assignment]  # never returns
        error: BaseException | None = None
        try:
            self._beginning.presence.wait()
            self._beginning.lay_aside()
            run()
            launch.wait_for_threads()
            self._children.wait()
        except BaseException as raised:
            error = raised
        finally:
            os._exit = original_exit
        return self._end(error)

    def _outcome(self, code: int) -> Outcome:
        """The working directory is again the first one, which the paths in it refer to."""
        telling, diagnosis = self.findings.telling, None
        if self.findings.has_harm:
            try:
                os.chdir(self.findings.command.cwd)
                diagnosis = telling.diagnosis("anomaly")
            except Exception as error:
                self.findings.failed(error)
        return Outcome(code=code, recording=telling.recording, diagnosis=diagnosis)

    # ---- the end ------------------------------------------------------------------------------

    def _hard_exit(self, original: Callable[[int], NoReturn]) -> Callable[[int], None]:
        """`os._exit` skips everything; come to an end first."""

        def leave(code: int) -> None:
            if self._getpid() == self._pid and not self.findings.is_ending:
                try:
                    code = self._end(SystemExit(code))
                except SystemExit:
                    pass
            original(code)

        return leave

    def _end(self, error: BaseException | None) -> int:
        """Tell what was found. An error of whynan's own costs the rest of that, not the program's end."""
        if self.findings.has_left and isinstance(error, KeyboardInterrupt):
            error = StopRun()  # it was woken
        try:
            return self._conclude(error)
        except Exception as own:
            self.findings.failed(own)
        if self.findings.has_harm:
            return 3
        if isinstance(error, SystemExit):
            raise error
        return 0 if error is None else 1

    def _conclude(self, error: BaseException | None) -> int:
        findings, telling = self.findings, self.findings.telling
        findings.is_ending = True
        stopped = isinstance(error, StopRun) or self._children.explain(error)
        expected = stopped or isinstance(error, (SystemExit, KeyboardInterrupt))
        crash = None if expected else error
        watched = findings.watch is not None
        if crash is not None and watched and self._starter is None:
            self._print_traceback(crash)  # a second run may take long
        self._stop_watching(error)
        harmed = findings.hear_the_ranks(crash) or self._children.have_left(HARM)
        telling.is_silent |= self._children.have_left(TOLD) and not findings.has_harm
        if crash is not None and (harmed if self._starter is not None else not watched):
            self._print_traceback(crash)
        absent = not harmed and (self._is_absent() or is_missing(error))
        self._note_the_unwatched()
        with findings.libraries.in_use(), launch.in_folder(findings.command.cwd):
            findings.show()
            if not absent:
                self._write("anomaly" if harmed else "crashed" if crash is not None else "clean")
        self._last_remarks(error, harmed)
        if harmed:
            return 3
        if self._starter is not None:
            self.error = None if stopped else error
            return 2 if self._beginning.presence.is_refused else 0
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
        findings, telling = self.findings, self.findings.telling
        self._beginning.presence.end()
        self._last_look(error)
        with findings.libraries.in_use():
            findings.look_elsewhere()
        findings.numpy.stop()
        self._beginning.end()
        if not findings.has_harm:
            telling.recording = replace(telling.recording, evidence=findings.numpy.harms(error))

    def _last_look(self, error: BaseException | None) -> None:
        if self.findings.watch is None:
            return
        try:
            self.findings.watch.stop(error)
        except StopRun:
            pass
        except Exception as own:
            self.findings.failed(own)
        self.findings.take()

    def _is_absent(self) -> bool:
        """Whether torch was used and nothing was watched: then silence is no proof of health."""
        if self._getpid() != self._pid:
            return False
        presence, watch = self._beginning.presence, self.findings.watch
        why = presence.absence() or (watch.quiet.broken if watch is not None else None)
        if why is not None:
            voice.say(f"torch was used, but not watched to the end: {why}")
        absent = why is not None or presence.is_refused or self._children.have_left(ABSENT)
        if absent and self._word_to is not None:
            leave_word(self._word_to, ABSENT)
        return absent

    def _note_the_unwatched(self) -> None:
        """For the reports in files, too."""
        telling, self._unwatched = self.findings.telling, self._children.remark
        if self._unwatched is not None:
            notes = (*telling.recording.notes, self._unwatched)
            telling.recording = replace(telling.recording, notes=notes)

    def _last_remarks(self, error: BaseException | None, harmed: bool) -> None:
        recording = self.findings.telling.recording
        if is_missing(error):
            voice.say(NOT_INSTALLED)
        if self.findings.is_enough and not harmed:
            voice.say(f"no harm in {recording.steps} steps; stopped as --max-steps asked")
        self._release(harmed)
        self._children.close()
        self._say_what_was_skipped()
        poured = self._options.poured
        if (
            poured is not None
            and self._starter is None
            and not (harmed and self._options.fixes_follow)
        ):
            poured.out()
        if harmed and not self.findings.telling.is_silent:
            for note in recording.notes:
                voice.say(note)
        elif self._unwatched is not None:
            voice.say(self._unwatched)
        elif error is None and not harmed:
            self._say_that_all_was_well(recording.steps)

    def _say_that_all_was_well(self, steps: int) -> None:
        """To a person who looks on; in a file it would only be a line more."""
        findings, options = self.findings, self._options
        watch = findings.watch
        silent = options.is_quiet or options.aside is not None or findings.telling.is_silent
        if watch is None or self._starter is not None or silent or findings.is_enough:
            return
        if voice.is_on_terminal():
            let_be = [(s.what, s.step) for s in watch.ledger.silent]
            voice.say(no_harm(steps, watch.quiet.clock.share(), let_be))

    def _say_what_was_skipped(self) -> None:
        if self.findings.watch is None:
            return
        told = self.findings.watch.told
        if told.skipped:
            steps = ", ".join(map(str, told.skipped[:20]))
            more = ", ..." if len(told.skipped) > 20 else ""
            voice.say(f"skipped {len(told.skipped)} update(s), at step {steps}{more}")
        later = told.later - {e.step for e in told.evidence}
        if later:
            voice.say(f"{len(later)} more steps were harmful after that one")

    def _print_traceback(self, error: BaseException) -> None:
        try:
            launch.print_traceback(error)
        except SystemExit as leaves:
            self._leaves = leaves

    def _write(self, outcome: Verdict) -> None:
        """For the last time."""
        if self.findings.draws:
            self.findings.telling.outputs.finish_board()
        self.findings.telling.write(outcome, is_last=True)

    def _release(self, harmed: bool) -> None:
        """All is written: whoever waits for this process may go on."""
        if self.findings.lockstep is not None:
            if self._word_to is not None:
                told = not self.findings.telling.is_silent
                leave_word(self._word_to, *[HARM] * harmed, *[TOLD] * told)
            self.findings.lockstep.release()
            if self._word_to is not None and harmed:
                let_go_first(self._word_to)

"""`whynan run`: one program, watched or traced from its first operation to its exit code."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from whynan import launch
from whynan.arrays.numpy_watch import NumpyWatch
from whynan.children import Children, leave_word, optimizers_so_far, when_joining
from whynan.errors import StopRun, UsageError
from whynan.explain.story import tell
from whynan.files import SAVE_BATCH_TO
from whynan.hush import same_random
from whynan.libraries import Libraries
from whynan.model import Diagnosis, Evidence, Outcome
from whynan.outputs import Outputs, RunOptions
from whynan.pipeline import diagnose, unseen
from whynan.ranks import launched
from whynan.recording import Recording
from whynan.watching.rerun import Command, look_again, report_progress

if TYPE_CHECKING:
    from whynan.ranks.lockstep import Lockstep
    from whynan.record.session import Session
    from whynan.watching.escalate import Watch
    from whynan.watching.guard import Seen


class Run:
    """One program under the tracer or the guard."""

    def __init__(self, program: launch.Program, options: RunOptions) -> None:
        self.program = program
        self.options = options
        self.session: Session | None = None
        self.watch: Watch | None = None
        self.lockstep: Lockstep | None = None  # with the other ranks of the job
        self._is_silent = False  # another rank tells the story
        self._command = Command(
            target=program.target, args=program.args, is_module=program.is_module, cwd=os.getcwd()
        )
        self._pid = os.getpid()
        self._begin_s = time.monotonic()
        self._printed = 0
        self._stopped_by_limit = False
        self._ending = False
        self._reproduced = "live"
        self._recording = Recording()
        self._extra: tuple[Evidence, ...] = ()  # not from this process's recorder
        self._notes: list[str] = []
        self._tell_progress = report_progress()
        self._outputs = Outputs(options, self._say)
        self.libraries = Libraries(os.devnull)
        self._numpy = NumpyWatch()
        self._children = Children(program, options, self._take_off)
        self._starter: Path | None = None  # in a process that the program started: word for it
        self._stop_waiting: Callable[[], None] = lambda: None
        self.error: BaseException | None = None  # of such a process, for it to raise

    def go(self) -> int:
        """Run it and return the exit code."""
        self._outputs.check()
        if self.options.save_batch is not None:  # absolute: the program may change the folder
            os.environ[SAVE_BATCH_TO] = str(self.options.save_batch.absolute())
        try:
            run = launch.prepare(self.program)
        except UsageError:
            raise
        except BaseException as failure:  # a package's own __init__ failed
            return self._end(failure)
        for name in [n for n in sys.modules if n.split(".")[0] == "click"]:
            del sys.modules[name]  # the program may have a module of that name
        self.libraries = Libraries(sys.path[0])
        self._numpy.start()
        return self._call(run, self._start)

    def attend(self, work: Callable[[], object], folder: Path) -> int:
        """The same for what a process does that the program started, once it joins a job."""
        self._starter, self._is_silent = folder, True
        return self._call(work, self._await_job)

    def _call(self, run: Callable[[], object], start: Callable[[], None]) -> int:
        hook = launch.AfterImport("torch", start)
        hook.install()
        original_exit = os._exit
        os._exit = self._hard_exit(original_exit)  # type: ignore[assignment]  # never returns
        error: BaseException | None = None
        try:
            run()
            launch.wait_for_threads()
            self._children.wait()
        except BaseException as raised:
            error = raised
        finally:
            hook.remove()
            self._stop_waiting()
            os._exit = original_exit
        return self._end(error)

    def found(self) -> Diagnosis | None:
        """The diagnosis of a run in which harm was found; the working directory is the first one."""
        if not self._recording.evidence:
            return None
        os.chdir(self._command.cwd)
        return self._diagnosis("anomaly")

    # ---- while it runs ----------------------------------------------------------------

    def _take_off(self) -> None:
        """In a forked process, which has hooks and a recorder of its own."""
        part: Any = self.watch or self.session
        if part is not None:
            part.abandon()
        self._numpy.stop()

    @property
    def _is_rank(self) -> bool:
        return launched() or self._starter is not None

    def _await_job(self) -> None:
        self._stop_waiting = when_joining(self._join_job)

    def _join_job(self) -> None:
        self._numpy.start()
        self._start()

    def _start(self) -> None:
        """Called right after the program imported torch."""
        try:
            options = self.options
            if not self._is_rank:
                self._children.install()
            from_the_start = options.mode == "trace" and options.trace_from is None
            if from_the_start and options.on_anomaly != "skip" and not self._is_rank:
                self._start_tracing()
            else:
                self._start_watching()
            if self.session is not None:
                self._outputs.open_board(self.session, self.watch)
        except Exception as error:
            self._aside(error)

    @property
    def _draws(self) -> bool:
        """Of several ranks, the first one."""
        return self.lockstep is None or self.lockstep.job.rank == 0

    def _start_tracing(self) -> None:
        from whynan.record.session import Session

        session = Session(on_evidence=lambda evidence: self._found(evidence, "live"))
        session.tracer.on_step_back = self._aside
        session.optimizers.on_step = self._stepped
        session.start()
        self.session = session

    def _start_watching(self) -> None:
        from whynan.watching.escalate import LIVE_STEPS, Watch

        options = self.options
        live = LIVE_STEPS if options.live_steps is None else options.live_steps
        watch = Watch(
            policy=options.on_anomaly,
            found=self._found,
            unexplained=self._unexplained,
            trace=options.mode != "guard",
            live_steps=sys.maxsize if options.mode == "trace" and not options.trace_from else live,
            armed_from=options.trace_from,
        )
        watch.on_step, watch.on_error = self._stepped, self._aside
        if self._is_rank:
            self._join_ranks(watch)
        watch.start(optimizers=optimizers_so_far() if self._starter is not None else ())
        self.watch, self.session = watch, watch.session

    def _join_ranks(self, watch: Watch) -> None:
        from whynan.ranks.lockstep import Lockstep

        self.lockstep = Lockstep(
            watch, leave=self._leave, unseen=unseen, keep=self._keep_step, say=self._say
        )
        self.lockstep.start()

    def _keep_step(self) -> None:
        self._take()
        self._fill_capsule()

    def _hear_the_ranks(self, error: BaseException | None) -> bool:
        """Whether the job came to harm; only one of its processes tells of it."""
        if self.lockstep is None:
            return bool(self._recording.evidence)
        self._recording, speaks = self.lockstep.conclude(self._recording, error)
        self._is_silent = not speaks
        self._reproduced = self.lockstep.how
        return self.lockstep.harmed

    def _found(self, evidence: Evidence, how: str) -> None:
        self._reproduced = how
        self._take()
        if not self._ending:  # else the program's own traceback comes first
            with same_random(), self.libraries.in_use():
                self._show()
                self._write("anomaly")
                self._fill_capsule()
        if self.options.on_anomaly == "stop":
            self._leave()

    def _leave(self) -> NoReturn:
        if self.session is not None:
            self.session.request_stop()
        raise StopRun

    def _unexplained(self, seen: Seen) -> None:
        """The guard saw harm, and this process cannot show how it came about."""
        found, why = self._explain_elsewhere(seen)
        if found:
            self._extra, self._reproduced = found, "rerun"
        elif not seen.certain and self.options.mode != "guard":
            return  # nothing confirms it
        else:
            self._extra, self._reproduced = (unseen(seen, why),), "no"
            if self.watch is not None:
                self.watch.batches.keep_last()
        self._take()
        if not self._ending:
            self._show()
            self._write("anomaly")
            self._fill_capsule()
            if self.options.on_anomaly == "stop":
                self._leave()

    def _explain_elsewhere(self, seen: Seen) -> tuple[tuple[Evidence, ...], str]:
        if self.options.mode == "guard":
            return (), "--mode guard only looks; run again without it to have the step recorded"
        if self.options.on_anomaly != "stop":
            return (), (
                "the step could not be repeated in place; with --on-anomaly stop the script "
                "is run again to record it"
            )
        again = look_again(self._command, seen, time.monotonic() - self._begin_s, self._say)
        self._notes += [note for note in again.notes if note not in self._notes]
        return again.evidence, again.why

    def _stepped(self, step: int) -> None:
        if self._draws:
            self._outputs.draw(step)
        self._tell_progress(step)
        if self._is_enough(step):
            self._stopped_by_limit = True
            raise StopRun

    def _is_enough(self, step: int) -> bool:
        options = self.options
        if options.max_steps is not None and step >= options.max_steps:
            return True
        if options.enough is None or step < options.enough[0]:
            return False
        return time.monotonic() - self._begin_s > options.enough[1]

    def _aside(self, error: BaseException) -> None:
        self._say(f"stepped aside after an error of its own, the script goes on: {error!r}")

    def _hard_exit(self, original: Callable[[int], NoReturn]) -> Callable[[int], None]:
        """`os._exit` skips everything; save the report first."""

        def leave(code: int) -> None:
            if os.getpid() == self._pid:
                self._ending = True
                self._take()
                harmed = self._hear_the_ranks(None)
                self._write("anomaly" if harmed else "clean")
                self._release(harmed)
                code = 3 if harmed else code
            original(code)

        return leave

    # ---- at the end -------------------------------------------------------------------

    def _end(self, error: BaseException | None) -> int:
        self._ending = True
        stopped = isinstance(error, StopRun) or self._children.explain(error)
        crashed = (
            error is not None
            and not stopped
            and not isinstance(error, (SystemExit, KeyboardInterrupt))
        )
        part: Any = self.watch or self.session
        if part is not None:
            try:
                if crashed and error is not None and self.watch is not None and not self._starter:
                    launch.print_traceback(error)  # a second run may take long
                part.stop(None if stopped else error)
            except StopRun:
                pass
            self._take()
        self._numpy.stop()
        if not self._recording.evidence:
            self._recording = replace(self._recording, evidence=self._numpy.harms(error))
        harmed = self._hear_the_ranks(error if crashed else None) or self._children.harmed
        self._is_silent |= self._children.told and not self._recording.evidence
        if crashed and error is not None and (harmed if self._starter else self.watch is None):
            launch.print_traceback(error)
        with self.libraries.in_use():
            self._show()
            self._write("anomaly" if harmed else "crashed" if crashed else "clean")
        if self._stopped_by_limit and not harmed:
            self._say(f"no harm in {self._recording.steps} steps; stopped as --max-steps asked")
        self._release(harmed)
        self._children.close()
        self._say_what_was_skipped()
        if harmed:
            for note in () if self._is_silent else self._recording.notes:
                self._say(note)
            return 3
        if self._starter is not None:
            self.error = None if stopped else error
            return 0
        if isinstance(error, KeyboardInterrupt):
            launch.print_traceback(error)
            sys.stdout.flush()
            launch.die_of_interrupt()
        if isinstance(error, SystemExit):
            raise error
        return 1 if crashed else 0

    def _release(self, harmed: bool) -> None:
        """All is written: whoever waits for this process may go on."""
        if self.lockstep is not None:
            if self._starter is not None:
                leave_word(self._starter, harmed=harmed, told=not self._is_silent)
            self.lockstep.release()

    def _say_what_was_skipped(self) -> None:
        if self.watch is None:
            return
        skipped = self.watch.skipped
        if skipped:
            steps = ", ".join(map(str, skipped[:20])) + (", ..." if len(skipped) > 20 else "")
            self._say(f"skipped {len(skipped)} update(s), at step {steps}")
        if self.watch.later:
            self._say(f"{self.watch.later} more steps were harmful after that one")

    def _take(self) -> None:
        """Collect what is known so far."""
        if self.watch is not None:
            recording = self.watch.recording()
        elif self.session is not None:
            recording = self.session.recording()
        else:
            recording = self._recording
        notes = (*recording.notes, *[n for n in self._notes if n not in recording.notes])
        evidence = tuple(map(self._numpy.cross, self._extra or recording.evidence))
        self._recording = replace(recording, evidence=evidence, notes=notes)

    def _show(self) -> None:
        """Print the anomalies that were not printed yet."""
        new = self._recording.evidence[self._printed :]
        if not new or self._is_silent:
            return
        self._printed += len(new)
        from whynan.report import terminal

        part = diagnose(replace(self._recording, evidence=new))
        sys.stdout.flush()
        stories = [tell(a) for a in part.anomalies]
        if self.options.fixes_follow and self.lockstep is None:
            stories = [replace(story, fixes=()) for story in stories]
        terminal.write(terminal.draw(stories), sys.stderr)

    def _diagnosis(self, outcome: Outcome) -> Diagnosis:
        result = diagnose(self._recording, script=self.program.target, outcome=outcome)
        return replace(result, mode=self.options.mode, reproduced=self._reproduced)

    def _write(self, outcome: Outcome) -> None:
        if self._ending and self._draws:
            self._outputs.finish_board()
        if not self._is_silent and self._outputs.are_wanted:
            self._outputs.write(self._diagnosis(outcome), self._recording, is_last=self._ending)

    def _fill_capsule(self) -> None:
        if self.watch is None:
            return
        rank = self.lockstep.job.rank if self.lockstep is not None else None
        command = [self.program.target, *self.program.args]
        self._outputs.fill_capsule(
            self.watch, command, rank, lambda: self._recording.of(self._diagnosis("anomaly"))
        )

    @staticmethod
    def _say(text: str) -> None:
        print(f"whynan: {text}", file=sys.stderr)

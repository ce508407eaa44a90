"""How a watch comes about: when torch is imported, when a process joins a job, once more."""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from whynan.arrays.libraries import MODULES
from whynan.ranks import launched
from whynan.run.aside import Redirection
from whynan.run.children import TRAINED, leave_word, when_joining
from whynan.run.findings import Findings
from whynan.run.presence import SECOND_TIME, Presence, forget_torch, leave_in_silence
from whynan.seam.patches import Patches


class Beginning:
    """Puts the watch on, and what there is of it off again where that fails."""

    def __init__(self, findings: Findings, *, starter: Path | None) -> None:
        self.presence = Presence(self._torch_has_come, self._begin_again)
        for module in (*MODULES, "pandas"):
            self.presence.after(module, functools.partial(findings.numpy.add, module))
        self.is_rank = launched() or starter is not None
        self._findings = findings
        self._pid = os.getpid()
        self._aside: Redirection | None = None
        self._starter = starter  # in a process that a watched program started
        self._is_watched: Callable[[], None] = lambda: None  # called there when the watch begins
        self._patches = Patches()

    def lay_aside(self) -> None:
        """From here on, what the program writes; in a second run."""
        options = self._findings.options
        if options.aside is not None:
            own = tuple(str(p) for p in (options.save_batch, options.recording) if p is not None)
            self._aside = Redirection(options.aside, own)
            self._aside.start()
            self._findings.numpy.hear_hidden()

    def end(self) -> None:
        self._patches.restore()

    def take_off(self) -> None:
        """In a forked process, which has hooks and a recorder of its own."""
        if self._findings.watch is not None:
            self._findings.watch.abandon()
        self._findings.numpy.stop()

    def _torch_has_come(self, late: bool) -> None:
        """Called right after the program imported torch, or later if that went unseen."""
        if self._aside is not None:
            self._aside.know_torch(sys.modules["torch"])
            self._findings.numpy.hear_hidden()
        with self._or_unwatched():
            if self._starter is not None:
                self._say_if_training(self._starter)
                self._patches.on_restore(when_joining(self._join_job))
            else:
                self._start(late)

    def _say_if_training(self, starter: Path) -> None:
        from whynan.seam.training import at_first_step

        self._is_watched = at_first_step(lambda: leave_word(starter, TRAINED))
        self._patches.on_restore(self._is_watched)

    def _join_job(self) -> None:
        self._is_watched()
        with self._or_unwatched():
            self._findings.numpy.start()
            self._start(late=True)

    def _become_rank_when_joining(self) -> None:
        """A launcher need not say that there are others, and Lightning's is itself the first rank."""
        from torch import distributed

        if distributed.is_available():
            from whynan.seam.exchanges import when_joined

            when_joined(self._become_rank, self._patches)

    def _become_rank(self) -> None:
        from torch import distributed

        if self.is_rank or os.getpid() != self._pid:  # a forked process has what its parent had
            return
        self.is_rank = distributed.is_initialized() and distributed.get_world_size() > 1
        if not self.is_rank:
            return
        self._anew()
        if self._findings.lockstep is not None:
            self._findings.lockstep.job.job_joined()

    def _begin_again(self) -> None:
        """Torch's code has run a second time: its types are new objects, so all that knows the old
        ones is made anew. Several ranks cannot, as they have joined already."""
        if self._findings.watch is not None:
            if self.is_rank:
                self.presence.lost(SECOND_TIME)
            else:
                self._anew(forget_torch)

    def _anew(self, between: Callable[[], None] = lambda: None) -> None:
        """Another watch instead of this one, which keeps what was found."""
        findings, watch = self._findings, self._findings.watch
        if watch is None:
            return
        findings.keep()
        with self._or_unwatched():
            watch.abandon()
            findings.watch = None
            between()
            self._start(late=True)

    def _start(self, late: bool) -> None:
        from whynan.seam.values import SAFETENSORS, is_being_imported
        from whynan.watching.optimizers import optimizers_so_far
        from whynan.watching.plan import LIVE_OPERATIONS, LIVE_STEPS, Plan
        from whynan.watching.watch import Watch

        findings, options = self._findings, self._findings.options
        live = LIVE_STEPS if options.live_steps is None else options.live_steps
        few = options.live_operations
        always = options.mode == "trace" and options.trace_from is None
        plan = Plan(
            policy=options.on_anomaly,
            traces=options.mode != "guard",
            live_steps=sys.maxsize if always else live,
            live_operations=LIVE_OPERATIONS if few is None else few,
            armed_from=options.trace_from,
            always_live=always,
            save_batch=options.save_batch,
            finite_from=options.finite_from,
            keeps_operands=options.operands_are_kept,
            compared=options.climb,
        )
        if self.is_rank:
            from whynan.ranks.lockstep import Lockstep

            findings.lockstep = Lockstep(plan, findings, options.speaker)
            watch = findings.lockstep.watch
        else:
            watch = Watch(plan, findings)
            self._become_rank_when_joining()
        findings.watch = watch
        watch.start(optimizers=optimizers_so_far() if late else [])
        if findings.lockstep is not None:
            findings.lockstep.start()
        if threading.current_thread() is not threading.main_thread():
            self._patches.wrap(threading, "excepthook", leave_in_silence)
            watch.recorder.start_in_main_thread_too()
        findings.telling.outputs.open_board(watch)
        if is_being_imported(SAFETENSORS):
            self.presence.after(SAFETENSORS, watch.know_safetensors)

    @contextmanager
    def _or_unwatched(self) -> Iterator[None]:
        """Half a watch is none: what there is of it is taken off."""
        try:
            yield
        except Exception as error:
            self.presence.lost(f"whynan failed with {error!r}")
            watch, self._findings.watch = self._findings.watch, None
            self._findings.failed(error)
            if watch is not None:
                watch.abandon()

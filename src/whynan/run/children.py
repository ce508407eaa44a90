"""Processes that the program starts itself, as `mp.spawn` does: those that join a job are watched."""

from __future__ import annotations

import functools
import gc
import multiprocessing
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whynan.run.program import Program, without_own_frames
from whynan.run.rank_programs import RankPrograms
from whynan.run.unwatched import REMARK, Forked
from whynan.seam.patches import Patches

if TYPE_CHECKING:
    from whynan.run.outputs import RunOptions

# Their processes prepare data or run errands: a DataLoader's workers, pools, managers.
NOT_THE_USERS = {"torch", "multiprocessing", "concurrent", "joblib", "loky"}
# Words to the process that started one: it came to harm, has written the report of its job, used
# torch unwatched and has said so, or has trained without a job, unwatched.
HARM, TOLD, ABSENT, TRAINED = "harm", "told", "absent", "trained"
LEFT = ("ProcessExitedException", "ChildFailedError")  # of `mp.spawn`, of torchrun


@dataclass(frozen=True, kw_only=True)
class Watched:
    """What a process is to do, in the process itself: under watch once it joins a job."""

    target: Callable[..., Any]
    program: Program
    options: RunOptions
    folder: Path  # for word to the process that started it
    take_off: Callable[[], None] | None = None  # what a forked process has of its parent's watch

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "take_off": None}  # a spawned one begins anew

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from whynan.run.run import Run

        if self.take_off is not None:
            self.take_off()
        run, results = Run(self.program, self.options, self.folder), []
        code = run.attend(lambda: results.append(self.target(*args, **kwargs)))
        if code:
            raise SystemExit(code)
        if run.error is not None:
            raise run.error.with_traceback(without_own_frames(run.error.__traceback__))
        return results[0] if results else None


class Children:
    """The same in the process that starts them."""

    def __init__(self, program: Program, options: RunOptions, take_off: Callable[[], None]) -> None:
        self._program, self._options, self._take_off = program, options, take_off
        self._pid = os.getpid()
        self._forked: Forked | None = None
        self._folder: Path | None = None
        self._patches = Patches()

    def install(self) -> None:
        self._patches.wrap(multiprocessing.process.BaseProcess, "start", self._wrap_start)
        self._forked = Forked()
        options = self._options.from_here()
        RankPrograms(options, self._folder_for_word).install(self._patches)

    def _wrap_start(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def start(process: Any) -> None:
            kept = getattr(process, "_target", None), getattr(process, "_args", ())
            self._replace(process, *kept)
            try:
                original(process)
            except BaseException:
                process._target, process._args = kept
                raise

        return start

    def _replace(self, process: Any, target: Any, args: tuple[Any, ...]) -> None:
        if target is None:
            return  # a class with a `run` of its own
        spawns = getattr(target, "__module__", "") == "torch.multiprocessing.spawn"
        if spawns:
            # It hands an exception of the first argument on to the starter: watch inside it.
            process._args = (self._watched(args[0]), *args[1:])
        elif _module(target).split(".")[0] not in NOT_THE_USERS:
            process._target = self._watched(target)

    def _watched(self, target: Callable[..., Any]) -> Callable[..., Any]:
        if isinstance(target, Watched):
            return target
        return Watched(
            target=target,
            program=self._program,
            options=self._options.from_here(),  # the program may change the folder
            folder=self._folder_for_word(),
            take_off=self._begin,
        )

    def _folder_for_word(self) -> Path:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="whynan-"))
        return self._folder

    def _begin(self) -> None:
        """In a forked process that has a watch of its own."""
        self._take_off()
        if self._forked is not None:
            self._forked.is_watched()

    def wait(self) -> None:
        """As the interpreter does at its end: their word comes before the last one."""
        if self._folder is not None:
            for process in multiprocessing.active_children():
                if not process.daemon:
                    process.join()

    def have_left(self, word: str) -> bool:
        """Whether one of them has left this word."""
        return self._folder is not None and (self._folder / word).exists()

    @property
    def remark(self) -> str | None:
        """On those that trained and were not watched."""
        forked = self._forked is not None and self._forked.trained
        has_trained = os.getpid() == self._pid and (forked or self.have_left(TRAINED))
        return REMARK if has_trained else None

    def explain(self, error: BaseException | None) -> bool:
        """Whether this error only says that a process left because of the harm."""
        return type(error).__name__ in LEFT and self.have_left(HARM)

    def close(self) -> None:
        self._patches.restore()
        if self._folder is not None and os.getpid() == self._pid:
            shutil.rmtree(self._folder, ignore_errors=True)


def leave_word(folder: Path, *words: str) -> None:
    """For the process that started this one."""
    try:
        for word in words:
            (folder / word).touch()
    except OSError:  # it is gone
        pass


def _module(target: Any) -> str:
    while isinstance(target, functools.partial):
        target = target.func
    return str(getattr(target, "__module__", ""))


def when_joining(start: Callable[[], None]) -> Callable[[], None]:
    """Call `start` right before the first `init_process_group`; the result takes that back.

    The program was imported before: it may call the function by a name of its own.
    """
    from torch import distributed

    if not distributed.is_available():
        return lambda: None
    module: Any = distributed.distributed_c10d
    original = module.init_process_group
    # A spawned process runs functions whose namespace is that of no module in `sys.modules`.
    spaces = [r for r in gc.get_referrers(original) if isinstance(r, dict) and "__name__" in r]
    places = [(s, name) for s in spaces for name, value in list(s.items()) if value is original]

    def restore() -> None:
        for space, name in places:  # what was imported since keeps it, and finds nothing to start
            if space.get(name) is join:
                space[name] = original

    @functools.wraps(original)
    def join(*args: Any, **kwargs: Any) -> Any:
        restore()
        if places:
            places.clear()
            start()
        return module.init_process_group(*args, **kwargs)  # as the watch has it now

    for space, name in places:
        space[name] = join
    return restore

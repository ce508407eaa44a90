"""What statements would do outside of the program's memory is seen before it happens."""

from __future__ import annotations

import builtins
import io
import os
import sys
import threading
import time
import tokenize
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType, ModuleType
from typing import Any

from whynan.seam.patches import Patches

READS = frozenset({"read", "readline", "readlines", "readinto", "read1", "recv", "recv_into"})
WRITES = frozenset({"write", "writelines", "truncate", "send", "sendall", "sendto", "sendmsg"})
SYSTEM = frozenset({
    "system", "fork", "forkpty", "posix_spawn", "posix_spawnp", "fork_exec", "kill", "killpg", "remove",
    "unlink", "rename", "replace", "rmdir", "mkdir", "link", "symlink", "truncate", "write", "writev",
    "connect", "connect_ex", "bind", "sendfile",
})  # fmt: skip
SYSTEM_MODULES = frozenset({"posix", "nt", "_posixsubprocess", "_socket"})
OFTEN = 512  # calls and returns, between two looks at the clock
DATABASES = frozenset({"sqlite3", "_sqlite3", "dbm", "_dbm", "_gdbm"})
IN_MEMORY = (io.StringIO, io.BytesIO)
# Whose compiled functions change nothing but what they are given, and that can be put back.
HARMLESS = frozenset({"torch", "numpy", "pandas", "tokenizers", "PIL", "scipy", "sklearn"})
CHANGES = ("write", "save", "dump", "send", "put", "insert", "commit", "exec", "store", "upload", "publish", "push")  # fmt: skip


class Outside(BaseException):
    """Something was about to happen that cannot be put back; a BaseException so that nobody keeps it."""


@contextmanager
def none_outside(
    older: frozenset[int], end_s: float, is_own: Callable[[], object], *, is_strict: bool
) -> Iterator[None]:
    """Raise `Outside` before a file is opened for writing or read on, a byte is sent, a process is started, or a
    generator goes on whose frame is one of `older` (by id); and when it is later than `end_s`. Only in
    this thread, and not while `is_own` says that whynan itself is at work. `is_strict`: also before any
    compiled function whose effects are not known, be it a database's or a simulator's."""
    patches, thread = Patches(), threading.get_ident()
    opened: weakref.WeakSet[Any] = weakref.WeakSet()  # files, since

    def is_the_programs() -> bool:
        return threading.get_ident() == thread and not is_own()

    # `tokenize` reads the source for tracebacks, as `torch.manual_seed` makes one, by an `open` of its own
    owners: tuple[tuple[Any, str], ...] = (
        (builtins, "open"), (io, "open"), (os, "open"), (tokenize, "_builtin_open")
    )  # fmt: skip
    for owner, name in owners:
        patches.wrap(owner, name, partial(_only_reading, is_the_programs, opened))
    patches.wrap(builtins, "print", partial(_only_to_the_user, is_the_programs))
    look = _looking(older, opened, end_s, is_own, is_strict)
    sys.setprofile(look)
    try:
        yield
    finally:
        if sys.getprofile() is look:
            sys.setprofile(None)
        patches.restore()


def can_be_seen() -> bool:
    """Not while a profiler of the program's own is at work."""
    return sys.getprofile() is None


def _only_reading(
    is_the_programs: Callable[[], bool], opened: weakref.WeakSet[Any], original: Callable[..., Any]
) -> Callable[..., Any]:
    def open_(path: Any, mode: Any = "r", *args: Any, **kwargs: Any) -> Any:
        is_number = isinstance(mode, int)
        flags = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        writes = mode & flags if is_number else set(str(mode)) & set("wax+")
        if writes and is_the_programs():
            raise Outside
        file = original(path, mode, *args, **kwargs)
        if not is_number:
            opened.add(file)
        return file

    return open_


def _only_to_the_user(
    is_the_programs: Callable[[], bool], original: Callable[..., Any]
) -> Callable[..., Any]:
    def show(*args: Any, file: Any = None, **kwargs: Any) -> None:
        if not is_the_programs():
            original(*args, file=file, **kwargs)
            return
        if file not in (None, sys.stdout, sys.stderr) and not isinstance(file, IN_MEMORY):
            raise Outside  # the interpreter writes for it, and no event tells
        for value in args:
            str(value)  # which is heard

    return show


def _looking(
    older: frozenset[int], opened: weakref.WeakSet[Any], end_s: float,
    is_own: Callable[[], object], is_strict: bool,
) -> Callable[[FrameType, str, Any], None]:  # fmt: skip
    calls = 0

    def look(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal calls
        calls += 1
        if calls % OFTEN == 0 and time.monotonic() > end_s and not is_own():
            raise Outside
        if event == "c_call":
            name = getattr(arg, "__name__", "")
            if name in WRITES and _is_stream(getattr(arg, "__self__", None)):
                _leave(is_own)
            if name == "input" or (name in READS and _is_older_stream(arg, opened)):
                _leave(is_own)
            if name == "acquire" and _would_wait(arg):
                _leave(is_own)
            if name in SYSTEM and getattr(arg, "__module__", None) in SYSTEM_MODULES:
                _leave(is_own)
            if (is_strict or any(word in name for word in CHANGES)) and not _is_harmless(arg, name):
                _leave(is_own)
        elif event == "call" and older and id(frame) in older:
            raise Outside

    return look


def _is_older_stream(function: Any, opened: weakref.WeakSet[Any]) -> bool:
    """What is read from it is gone; a file that was opened since begins anew."""
    owner = getattr(function, "__self__", None)
    if not isinstance(owner, io.IOBase):
        return _is_stream(owner)
    beneath = getattr(owner, "buffer", None) if isinstance(owner, io.TextIOWrapper) else None
    return _is_stream(owner) and not (owner in opened or beneath in opened)


def _would_wait(function: Any) -> bool:
    """For what a thread may never do again."""
    locked = getattr(getattr(function, "__self__", None), "locked", None)
    return locked is not None and bool(locked())


def _leave(is_own: Callable[[], object]) -> None:
    if not is_own():
        raise Outside


def _is_harmless(function: Any, name: str) -> bool:
    """A compiled function of Python's own, or of a library that is known."""
    owner = getattr(function, "__self__", None)
    if owner is None or isinstance(owner, ModuleType):
        home = str(getattr(function, "__module__", None) or getattr(owner, "__name__", ""))
    else:
        kinds = (owner if isinstance(owner, type) else type(owner)).__mro__
        home = next((k.__module__ for k in kinds if name in k.__dict__), "builtins")
    root = home.split(".")[0]
    return root in HARMLESS or (root in sys.stdlib_module_names and root not in DATABASES)


def _is_stream(owner: Any) -> bool:
    if isinstance(owner, io.IOBase):
        return not isinstance(owner, IN_MEMORY)
    return type(owner).__module__ == "_socket" or type(owner).__name__ == "socket"

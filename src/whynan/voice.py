"""How whynan speaks: on standard error, whatever the program has made of it, and without an error.

The program's own `sys.stderr` comes first, then that of the process. What nobody can hear is kept
in mind for the reports in files; the exit code says the rest.
"""

from __future__ import annotations

import io
import os
import select
import shutil
import sys
from typing import Any

PATIENCE_S = 5.0  # for a reader of a pipe that does not wait
STANDARD_ERROR = 2


def _file_of(number: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(number)
    except OSError:
        return None
    return status.st_dev, status.st_ino


# A standard error that is closed leaves its number to the next file that the program opens, perhaps
# a checkpoint: only what was there at the start is written to.
_AT_THE_START = _file_of(STANDARD_ERROR) if sys.__stderr__ is not None else None
_unsaid: list[str] = []  # why, of the process as a whole, as its standard error is


# Names and source lines come from programs and files: their control characters must not steer the
# terminal. Each becomes one character that can be seen, so that columns stay.
_STEERING = {c: 0x2400 + c for c in range(32) if c not in (9, 10)} | {127: 0x2421}
_STEERING |= dict.fromkeys([*range(128, 160), 0x61C, 0x200E, 0x200F], 0xFFFD)
_STEERING |= dict.fromkeys([*range(0x2028, 0x202F), *range(0x2066, 0x206A)], 0xFFFD)


def visible(text: str) -> str:
    """Without control characters and marks of direction.

    >>> visible("a\\x1b[31m\\u202eb")
    'a␛[31m�b'
    """
    return text.translate(_STEERING)


def say(text: str) -> bool:
    """One remark. Whether it could be written."""
    return write(f"whynan: {visible(text)}\n")


def report(text: str) -> bool:
    """The same for a whole report, which comes after what the program has printed so far."""
    try:
        sys.stdout.flush()
    except Exception:  # there is none, it is closed or full: the program's own trouble
        pass
    return write(text)


def write(text: str) -> bool:
    """The words as they are."""
    try:
        _write_to(sys.stderr, text)
    except Exception as error:
        if not _write_to_process(text):
            _unsaid.append(f"{type(error).__name__}: {error}")
            return False
    return True


def now(text: str) -> None:
    """What is being done, on a line of the terminal that the next words take; nothing where nobody looks."""
    if is_on_terminal():
        width = shutil.get_terminal_size().columns
        write(f"\r\x1b[K{visible(text)[: width - 1]}")


def is_on_terminal() -> bool:
    """Whether a person looks at it while it is written."""
    try:
        return bool(sys.stderr.isatty())
    except Exception:
        return False


def columns() -> int | None:
    """How wide the terminal is; None where nobody looks."""
    return shutil.get_terminal_size().columns if is_on_terminal() else None


def unsaid() -> str | None:
    """What became of words that could not be written, if there were any."""
    if not _unsaid:
        return None
    return f"standard error could not be written to ({_unsaid[-1]}): not all was said there"


def let_go_of_broken_streams() -> None:
    """Python would end with 120 because of what is left in them, whatever the exit code was."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        try:
            if stream is not None and not getattr(stream, "closed", False):
                stream.flush()
        except Exception:
            setattr(sys, name, open(os.devnull, "w"))


def _write_to(stream: Any, text: str) -> None:
    if type(stream) is io.TextIOWrapper:
        stream.flush()
        raw = getattr(stream.buffer, "raw", stream.buffer)
        data = text.encode(stream.encoding, "backslashreplace")
        if isinstance(raw, io.FileIO):  # past the buffer, where what cannot be written would stay
            _write_all(raw.fileno(), data)
        else:
            stream.buffer.write(data)
            stream.buffer.flush()
        return
    try:
        stream.write(text)
    except UnicodeEncodeError as error:
        stream.write(text.encode(error.encoding, "backslashreplace").decode(error.encoding))
    if hasattr(stream, "flush"):
        stream.flush()


def _write_to_process(text: str) -> bool:
    if _AT_THE_START is None or _file_of(STANDARD_ERROR) != _AT_THE_START:
        return False
    encoding = getattr(sys.__stderr__, "encoding", None) or "utf-8"
    try:
        _write_all(STANDARD_ERROR, text.encode(encoding, "backslashreplace"))
    except OSError:
        return False
    return True


def _write_all(number: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(number, data) :]
        except BlockingIOError:
            if not select.select([], [number], [], PATIENCE_S)[1]:
                raise

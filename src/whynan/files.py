"""Files are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


def write_atomically(path: Path, text: str, *, private: bool = False) -> None:
    """A reader sees the old file or the new one, never half of one."""
    with replacing(path, private=private) as stream:
        stream.write(text.encode("utf-8"))


@contextmanager
def replacing(path: Path, *, private: bool = False) -> Iterator[IO[bytes]]:
    """What is written here becomes the file at the end of the block; `private` is for its owner alone.

    Until then it lies under a new name, which nobody can have prepared a link at.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():  # a device or a pipe is written to, not replaced
        with path.open("wb") as stream:
            yield stream
        return
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
        if not private:
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise

"""What a second run writes goes to a folder of its own, and it finds the files as the first run did.

Whatever Python opens to write, makes, renames or removes is laid over the real files: the program
reads back what it has written, and nobody else sees it. What the first run has made is not there yet.
"""

from __future__ import annotations

import builtins
import ctypes
import errno
import io
import os
import shutil
import stat
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from whynan.seam.patches import Patches

MOST = 1 << 30  # bytes of a file that is opened to be changed, which is copied before
DEVICES = ("/dev", "/proc", "/sys")
CACHES = ("XDG_CACHE_HOME", "HF_HOME", "TORCH_HOME", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
# Python's own modules that keep `open` by another name.
ALSO_OPEN = (("bz2", "_builtin_open"), ("tarfile", "bltn_open"))
WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
AT_FDCWD, NO_FOLLOW, BORN = -100, 0x100, 0x800  # of statx(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aside:
    """Where to write instead, and when the first run began (seconds since the epoch)."""

    folder: str
    since_s: float


class Laid:
    """The files as the program sees them."""

    def __init__(self, aside: Aside, own: tuple[str, ...]) -> None:
        self._root, self._since_s = os.path.abspath(aside.folder), aside.since_s
        self._here, self._temp = os.getcwd(), os.path.realpath(tempfile.gettempdir())
        caches = [os.path.expanduser("~/.cache"), *filter(None, map(os.environ.get, CACHES))]
        self._free = (*DEVICES, os.path.dirname(self._root), *map(os.path.abspath, caches), *own)
        self._gone: set[str] = set()  # real files and folders that the program has removed
        self._patches = Patches()

    def start(self) -> None:
        wrap = self._patches.wrap
        shutil_: Any = shutil
        for owner in (builtins, io):
            wrap(owner, "open", self._wrap_open)
        for name, attribute in ALSO_OPEN:
            if name in sys.modules:
                wrap(sys.modules[name], attribute, self._wrap_open)
        wrap(os, "open", self._wrap_os_open)
        for name in ("stat", "lstat", "access", "readlink", "chdir"):
            wrap(os, name, self._wrap_reading)
        for name in ("chmod", "utime", "truncate"):
            wrap(os, name, self._wrap_changing)
        for name in ("remove", "unlink"):
            wrap(os, name, self._wrap_remove)
        for name in ("rename", "replace"):
            wrap(os, name, self._wrap_rename)
        wrap(os, "mkdir", self._wrap_mkdir)
        wrap(os, "rmdir", self._wrap_rmdir)
        wrap(os, "symlink", self._wrap_symlink)
        wrap(os, "listdir", self._wrap_listdir)
        wrap(os, "scandir", self._wrap_scandir)
        # It would remove by descriptors of folders.
        had, shutil_._use_fd_functions = shutil_._use_fd_functions, False
        self._patches.on_restore(partial(setattr, shutil_, "_use_fd_functions", had))

    def know_torch(self, torch: Any) -> None:
        """It writes files by itself."""
        self._patches.wrap(torch, "save", self._wrap_save)

    def stop(self) -> None:
        self._patches.restore()

    # ---- where a path leads ------------------------------------------------------------------

    def _path(self, given: Any) -> str | None:
        """None: that is not for us."""
        if isinstance(given, int) or given is None:
            return None
        path = os.path.abspath(os.fsdecode(given))
        if any(path == free or path.startswith(free + os.sep) for free in self._free):
            return None
        return None if self._is_temporary(path) else path

    def _is_temporary(self, path: str) -> bool:
        """Made under a name that is used once: other programs must find it there. What was there when
        this run began is somebody's."""
        if not path.startswith(self._temp + os.sep) or path.startswith(self._here + os.sep):
            return False
        top = path[len(self._temp) + 1 :].split(os.sep)[0]
        top = os.path.join(self._temp, top)
        begun_s = _born(self._root)
        born_s = _born(top)
        is_new = born_s is None or (begun_s is not None and born_s >= begun_s)
        if top.startswith(os.path.join(self._temp, "torchinductor_")):
            return True
        return is_new and not _exists(self._aside(path))

    def _aside(self, path: str) -> str:
        return self._root + path

    def _is_real(self, path: str) -> bool:
        """Whether the file on the disk is what the program is to see, if nothing is laid over it."""
        at = path
        while at != os.path.dirname(at):
            if at in self._gone:
                return False
            at = os.path.dirname(at)
        born_s = _born(path)
        return born_s is None or born_s < self._since_s or not self._is_plain(path)

    def _is_plain(self, path: str) -> bool:
        try:
            mode = _lstat(path).st_mode
        except OSError:
            return True
        return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)

    def _seen(self, path: str) -> str:
        """Where it is read."""
        laid = self._aside(path)
        return laid if _exists(laid) or not self._is_real(path) else path

    def _is_there(self, path: str) -> bool:
        return _exists(self._seen(path))

    def _written(self, path: str, *, keeps: bool) -> str:
        """Where it is written, with what is in it already where that `keeps`."""
        laid, seen = self._aside(path), self._seen(path)
        if not self._is_plain(seen):
            return seen
        parent = os.path.dirname(path)
        if self._is_there(parent):
            self._folder(os.path.dirname(laid))
        if keeps and seen == path and _exists(path):
            _copy(path, laid)
        return laid

    def _folder(self, laid: str) -> None:
        """A folder that is a real one gets its like."""
        if not _exists(laid):
            self._folder(os.path.dirname(laid))
            _mkdir(laid)

    # ---- what the program calls --------------------------------------------------------------

    def _wrap_open(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def open_(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            path = self._path(file)
            if path is None:
                return original(file, mode, *args, **kwargs)
            if not set(mode) & set("wax+"):
                where = self._seen(path)
                return original(file if where == path else where, mode, *args, **kwargs)
            return original(self._written(path, keeps="w" not in mode), mode, *args, **kwargs)

        return open_

    def _wrap_os_open(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def open_(file: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
            path = None if dir_fd is not None else self._path(file)
            if path is not None and flags & WRITE_FLAGS:
                file = self._written(path, keeps=not flags & os.O_TRUNC)
            elif path is not None:
                file = self._seen(path)
            _refuse(dir_fd if flags & WRITE_FLAGS else None)
            return int(original(file, flags, mode, dir_fd=dir_fd))

        return open_

    def _wrap_reading(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def read(file: Any, *args: Any, **kwargs: Any) -> Any:
            path = None if kwargs.get("dir_fd") is not None else self._path(file)
            where = file if path is None else self._seen(path)
            return original(file if where == path else where, *args, **kwargs)

        return read

    def _wrap_changing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def change(file: Any, *args: Any, **kwargs: Any) -> Any:
            _refuse(kwargs.get("dir_fd"))
            path = self._path(file)
            if path is not None and _isdir(path):
                return None  # its date is nobody's answer
            where = file if path is None else self._written(path, keeps=True)
            return original(where, *args, **kwargs)

        return change

    def _wrap_remove(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def remove(file: Any, *, dir_fd: int | None = None) -> None:
            _refuse(dir_fd)
            path = self._path(file)
            if path is None:
                original(file)
                return
            laid = self._aside(path)
            if _exists(laid) or not self._is_there(path):
                original(laid)
            elif stat.S_ISDIR(_lstat(path).st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), file)
            self._gone.add(path)

        return remove

    def _wrap_rename(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def rename(source: Any, target: Any, **kwargs: Any) -> None:
            for name in ("src_dir_fd", "dst_dir_fd"):
                _refuse(kwargs.get(name))
            old, new = self._path(source), self._path(target)
            if old is None and new is None:
                original(source, target)
                return
            moved = source if old is None else self._written(old, keeps=True)
            original(moved, target if new is None else self._written(new, keeps=False))
            if old is not None:
                self._gone.add(old)
            if new is not None:
                self._gone.add(new)  # what lies over it is seen

        return rename

    def _wrap_mkdir(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def mkdir(file: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
            _refuse(dir_fd)
            path = self._path(file)
            if path is None:
                original(file, mode)
                return
            if self._is_there(path):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), file)
            if self._is_there(os.path.dirname(path)):
                self._folder(os.path.dirname(self._aside(path)))
            original(self._aside(path), mode)

        return mkdir

    def _wrap_rmdir(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def rmdir(file: Any, *, dir_fd: int | None = None) -> None:
            _refuse(dir_fd)
            path = self._path(file)
            if path is None:
                original(file)
                return
            if os.listdir(path):
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), file)
            if _exists(self._aside(path)):
                original(self._aside(path))
            self._gone.add(path)

        return rmdir

    def _wrap_symlink(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def symlink(source: Any, target: Any, is_folder: bool = False, **kwargs: Any) -> None:
            _refuse(kwargs.get("dir_fd"))
            path = self._path(target)
            if path is not None and self._is_there(path):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
            original(source, target if path is None else self._written(path, keeps=False))

        return symlink

    def _wrap_listdir(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def listdir(file: Any = ".") -> list[Any]:
            path = self._path(file)
            if path is None or isinstance(file, bytes):
                return list(original(file))
            laid, seen = self._aside(path), self._seen(path)
            if not _exists(laid) and seen == path:
                names = original(file)
            else:
                names = {*original(laid), *(original(path) if self._shows_through(path) else ())}
            return [name for name in names if self._is_there(os.path.join(path, name))]

        return listdir

    def _wrap_scandir(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def scandir(file: Any = ".") -> Any:
            path = self._path(file)
            if path is None or isinstance(file, bytes):
                return original(file)
            laid = self._aside(path)
            entries: dict[str, Any] = {}
            if self._shows_through(path):
                entries = {e.name: e for e in original(file)}
                names = {n for n in entries if self._is_real(os.path.join(path, n))}
                entries = {n: entries[n] for n in names}
            if self._seen(path) == laid:
                entries |= {e.name: e for e in original(laid)}
            return _Entries(iter(entries.values()))

        return scandir

    def _shows_through(self, path: str) -> bool:
        return self._is_real(path) and _isdir(path) and _exists(path)

    def _wrap_save(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
            path = self._path(f) if isinstance(f, (str, os.PathLike)) else None
            original(obj, f if path is None else self._written(path, keeps=False), *args, **kwargs)

        return save


class _Entries:
    """What `os.scandir` returns."""

    def __init__(self, entries: Iterator[os.DirEntry[str]]) -> None:
        self._entries = entries

    def __iter__(self) -> _Entries:
        return self

    def __next__(self) -> os.DirEntry[str]:
        return next(self._entries)

    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._entries = iter(())


# What Python has, not what the program sees.
_mkdir, _lstat, _open = os.mkdir, os.lstat, io.open


def _exists(path: str) -> bool:
    try:
        _lstat(path)
    except (OSError, ValueError):
        return False
    return True


def _isdir(path: str) -> bool:
    return _exists(path) and stat.S_ISDIR(_lstat(path).st_mode)


def _copy(path: str, laid: str) -> None:
    """As it is now."""
    if stat.S_ISDIR(_lstat(path).st_mode):
        raise OSError(errno.EXDEV, "a second run moves no folder", path)
    if _lstat(path).st_size > MOST:
        raise OSError(errno.EFBIG, "too large to be changed in a second run", path)
    with _open(path, "rb") as source, _open(laid, "wb") as target:
        shutil.copyfileobj(source, target)


def _refuse(dir_fd: int | None) -> None:
    if dir_fd is not None:
        raise PermissionError(errno.EPERM, "a second run changes nothing by a folder's number")


def _born(path: str) -> float | None:
    """When it was made; None if there is no such file, or this system does not know."""
    buffer = ctypes.create_string_buffer(256)
    ask = getattr(ctypes.CDLL(None), "statx", None)
    if ask is None or ask(AT_FDCWD, os.fsencode(path), NO_FOLLOW, BORN, buffer):
        return None
    if not struct.unpack_from("I", buffer, 0)[0] & BORN:
        return None
    seconds, nanoseconds = struct.unpack_from("qI", buffer, 0x50)
    return float(seconds + nanoseconds / 1e9)

"""The files as a second run sees them: the real ones as the first run found them, and its own laid over."""

from __future__ import annotations

import ctypes
import errno
import functools
import io
import os
import shutil
import stat
import struct
import sysconfig
import tempfile
from dataclasses import dataclass
from typing import Any

MOST = 1 << 30  # bytes of a file that is opened to be changed, which is copied before
LINKS = 40  # to follow, as Linux does
DEVICES = ("/dev", "/proc", "/sys")
CACHES = ("XDG_CACHE_HOME", "HF_HOME", "TORCH_HOME", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
COMPILED = "torchinductor_"  # a folder for temporary files, where others look for them
AT_FDCWD, NO_FOLLOW, BORN = -100, 0x100, 0x800  # of statx(2)

# What Python has, not what the program sees.
_lstat, _readlink, _scandir, _open = os.lstat, os.readlink, os.scandir, io.open
_mkdir, _symlink, _chmod = os.mkdir, os.symlink, os.chmod


@dataclass(frozen=True, slots=True, kw_only=True)
class Aside:
    """Where to write instead, and when the first run began (seconds since the epoch)."""

    folder: str
    since_s: float


class Laid:
    """Says of a path where it is read and where it is written. A file that was made since this run
    began is not one that Python made, which would be aside: it stays as it is."""

    def __init__(self, aside: Aside, own: tuple[str, ...]) -> None:
        self.root = os.path.realpath(aside.folder)
        self.here = os.getcwd()  # as the program sees it
        self.real_getcwd = os.getcwd
        self._at_first, self._temp = self.here, os.path.realpath(tempfile.gettempdir())
        self._since_s, self._begun_s = aside.since_s, _born(self.root) or float("inf")
        caches = [os.path.expanduser("~/.cache"), *filter(None, map(os.environ.get, CACHES))]
        packages = [sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")]
        self._free = (*DEVICES, *map(os.path.abspath, (*caches, *packages)), *own)
        self._gone: set[str] = set()  # real files and folders that the program has removed
        self._resolved: dict[str, str] = {}  # of folders

    # ---- where a path leads ------------------------------------------------------------------

    def path(self, given: Any, *, follow: bool = True) -> str | None:
        """Absolute and without links, as the program sees them. None: that is not for us."""
        if isinstance(given, int) or given is None:
            return None
        path = os.path.normpath(os.path.join(self.here, os.fsdecode(given)))
        if path == self.root or path.startswith(self.root + os.sep):
            path = path[len(self.root) :] or os.sep  # by the name that a file object has
        if self._is_free(path):
            return None
        path = self._resolve(path, follow)
        if self._is_free(path) or _born(path) > self._begun_s:
            return None
        return None if self._is_temporary(path) else path

    def _is_free(self, path: str) -> bool:
        kept = os.path.dirname(self.root)
        return any(path == free or path.startswith(free + os.sep) for free in (kept, *self._free))

    def _is_temporary(self, path: str) -> bool:
        """Made under a name that is used once: other programs must find it there. What was there when
        this run began is somebody's."""
        inside = path.startswith(self._temp + os.sep)
        if not inside or path.startswith(self._at_first + os.sep):
            return False
        top = path[len(self._temp) + 1 :].split(os.sep)[0]
        if top.startswith(COMPILED):
            return True
        top = os.path.join(self._temp, top)
        is_new = not exists(top) or _born(top) > self._begun_s
        return is_new and not exists(self.root + path)

    def _resolve(self, path: str, follow: bool) -> str:
        for _ in range(LINKS):
            parent, name = os.path.split(path)
            if not name:
                return path
            if parent not in self._resolved:
                self._resolved[parent] = self._resolve(parent, follow=True)
            path = os.path.join(self._resolved[parent], name)
            seen = self.seen(path)
            if not follow or not is_a(stat.S_ISLNK, seen):
                return path
            path = os.path.normpath(os.path.join(os.path.dirname(path), _readlink(seen)))
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)

    def is_at_home(self) -> bool:
        """Whether a relative path means the same to the system."""
        return self.here == self.real_getcwd()

    def forget_links(self) -> None:
        """Something was moved, removed or linked."""
        self._resolved.clear()

    # ---- what is there -----------------------------------------------------------------------

    def aside(self, path: str) -> str:
        return self.root + path

    def is_real(self, path: str) -> bool:
        """Whether the file on the disk is what the program is to see, if nothing is laid over it."""
        try:
            now = _lstat(path)
        except (OSError, ValueError):
            return not self._is_gone(path)
        if now.st_mtime > self._begun_s and not stat.S_ISDIR(now.st_mode):
            return True  # written in this run, by something else than Python
        if self._is_gone(path):
            return False
        born_s = _born(path)
        return not self._since_s <= born_s <= self._begun_s or not _is_plain(now.st_mode)

    def _is_gone(self, path: str) -> bool:
        while self._gone and path != os.path.dirname(path):
            if path in self._gone:
                return True
            path = os.path.dirname(path)
        return False

    def seen(self, path: str) -> str:
        """Where it is read."""
        laid = self.aside(path)
        return laid if exists(laid) or not self.is_real(path) else path

    def is_there(self, path: str) -> bool:
        return exists(self.seen(path))

    def names(self, path: str) -> set[str]:
        """Of a folder."""
        found = {*_listdir(self.aside(path)), *_listdir(path)}
        return {name for name in found if self.is_there(os.path.join(path, name))}

    # ---- what is changed ---------------------------------------------------------------------

    def written(self, path: str, *, keeps: bool) -> str:
        """Where it is written, with what is in it already where that `keeps`."""
        laid, seen = self.aside(path), self.seen(path)
        if exists(seen) and not _is_plain(_lstat(seen).st_mode):
            return seen
        self.make_parent(path)
        if keeps and seen == path and exists(path):
            _copy(path, laid)
        return laid

    def make_parent(self, path: str) -> None:
        """A folder that is a real one gets its like. One that is hidden was made by another program:
        by that it is there again."""
        parent = os.path.dirname(path)
        if is_a(stat.S_ISDIR, self.seen(parent)) or is_a(stat.S_ISDIR, parent):
            self._folder(self.aside(parent))

    def _folder(self, laid: str) -> None:
        if not exists(laid):
            self._folder(os.path.dirname(laid))
            try:
                _mkdir(laid)
            except FileExistsError:  # by another process of this run
                pass

    def remove(self, path: str) -> None:
        """It is no more, whatever is on the disk."""
        self._gone.add(path)
        self.forget_links()


def exists(path: str) -> bool:
    try:
        _lstat(path)
    except (OSError, ValueError):
        return False
    return True


def is_a(kind: Any, path: str) -> bool:
    try:
        return bool(kind(_lstat(path).st_mode))
    except (OSError, ValueError):
        return False


def _is_plain(mode: int) -> bool:
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)


def _listdir(path: str) -> list[str]:
    try:
        with _scandir(path) as entries:
            return [entry.name for entry in entries]
    except OSError:
        return []


def _copy(path: str, laid: str) -> None:
    """As it is now."""
    now = _lstat(path)
    if stat.S_ISLNK(now.st_mode):
        _symlink(_readlink(path), laid)
        return
    if stat.S_ISDIR(now.st_mode):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)  # `shutil.move` copies then
    if now.st_size > MOST:
        raise OSError(errno.EFBIG, "too large to be changed in a second run", path)
    with _open(path, "rb") as source, _open(laid, "wb") as target:
        shutil.copyfileobj(source, target)
    _chmod(laid, stat.S_IMODE(now.st_mode))


@functools.cache
def _statx() -> Any:
    return getattr(ctypes.CDLL(None), "statx", None)


def _born(path: str) -> float:
    """When it was made; 0 if there is no such file, or this system does not know."""
    buffer, ask = ctypes.create_string_buffer(256), _statx()
    if ask is None or ask(AT_FDCWD, os.fsencode(path), NO_FOLLOW, BORN, buffer):
        return 0.0
    if not struct.unpack_from("I", buffer, 0)[0] & BORN:
        return 0.0
    seconds, nanoseconds = struct.unpack_from("qI", buffer, 0x50)
    return float(seconds + nanoseconds / 1e9)

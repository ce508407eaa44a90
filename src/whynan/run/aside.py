"""What a second run writes goes to a folder of its own, and it finds the files as the first run did.

Whatever Python opens to write, makes, renames or removes is laid over the real files: the program
reads back what it has written, and nobody else sees it. What the first run has made is not there yet.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import shutil
import stat
import sys
import types
from collections.abc import Callable
from functools import partial
from typing import Any

from whynan.run.entries import Entries, Entry
from whynan.run.laid import Aside, Laid, exists, is_a
from whynan.seam.patches import Patches

Function = Callable[..., Any]
WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
UNNAMED = getattr(os, "O_TMPFILE", 0) & ~getattr(os, "O_DIRECTORY", 0)
LOOK = ("stat", "statvfs", "getxattr", "listxattr")
LOOK_AT_LINKS = ("lstat", "readlink")
CHANGE = ("chmod", "chown", "utime", "truncate", "setxattr", "removexattr")


class Redirection:
    """Python's functions for files, while the program runs. It is left on: what the program does at
    its very end goes aside, too."""

    def __init__(self, aside: Aside, own: tuple[str, ...]) -> None:
        self._laid = Laid(aside, own)
        self._patches = Patches()
        self._renewed: dict[int, tuple[Function, Function]] = {}

    def start(self) -> None:
        wrappers: dict[str, Callable[[Function], Function]] = {
            "open": self._os_open, "chdir": self._chdir, "getcwd": self._getcwd, "mkdir": self._mkdir,
            "access": self._access, "rmdir": self._rmdir, "symlink": self._symlink, "link": self._link,
            "listdir": self._listdir, "scandir": self._scandir,
            **dict.fromkeys(("remove", "unlink"), self._remove),
            **dict.fromkeys(("rename", "replace"), self._rename),
            **dict.fromkeys(LOOK, self._look), **dict.fromkeys(CHANGE, self._change),
            **dict.fromkeys(LOOK_AT_LINKS, partial(self._look, follow=False)),
        }  # fmt: skip
        for name, wrapper in wrappers.items():
            if hasattr(os, name):
                self._wrap(os, name, wrapper)
        for owner in (builtins, io):
            self._wrap(owner, "open", self._open)
        self._renew()
        self._wrap_databases()
        # It would remove by descriptors of folders.
        had = shutil._use_fd_functions  # type: ignore[attr-defined]  # no stub has it
        shutil._use_fd_functions = False  # type: ignore[attr-defined]
        self._patches.on_restore(partial(setattr, shutil, "_use_fd_functions", had))

    def know_torch(self, torch: Any) -> None:
        """It writes files by itself."""
        for owner in (torch, torch.serialization, torch.jit):
            self._patches.wrap(owner, "save", self._save)

    def stop(self) -> None:
        self._patches.restore()

    def _wrap(self, owner: Any, name: str, wrapper: Callable[[Function], Function]) -> None:
        original = getattr(owner, name)
        self._patches.wrap(owner, name, wrapper)
        self._renewed[id(original)] = original, getattr(owner, name)

    def _renew(self) -> None:
        """Modules of Python's that keep one of these by another name, or as a default."""
        for name in [n for n in sys.modules if n.split(".")[0] in sys.stdlib_module_names]:
            module = sys.modules[name]
            if name.split(".")[0] in ("os", "posix", "importlib", "_io", "io", "builtins"):
                continue
            classes = [v for v in vars(module).values() if isinstance(v, type)]
            for owner in (module, *(c for c in classes if c.__module__ == name)):
                self._renew_in(owner)

    def _renew_in(self, owner: Any) -> None:
        for name, value in list(vars(owner).items()):
            kept = value.__func__ if isinstance(value, staticmethod) else value
            if id(kept) in self._renewed and self._renewed[id(kept)][0] is kept:
                new = self._renewed[id(kept)][1]
                setattr(owner, name, staticmethod(new) if isinstance(owner, type) else new)
                self._patches.on_restore(partial(setattr, owner, name, value))
            elif isinstance(kept, types.FunctionType) and kept.__defaults__:
                had = kept.__defaults__
                kept.__defaults__ = tuple(self._renewed.get(id(d), (d, d))[1] for d in had)
                self._patches.on_restore(partial(setattr, kept, "__defaults__", had))

    def _wrap_databases(self) -> None:
        try:
            import sqlite3
        except ImportError:  # a Python without it
            return
        for owner in (sqlite3, sqlite3.dbapi2):
            self._patches.wrap(owner, "connect", self._connect)

    # ---- one wrapper for each way ------------------------------------------------------------

    def _found(self, given: Any, path: str) -> Any:
        """Where it is read: as it was given, if it is there."""
        seen = self._laid.seen(path)
        if seen != path and not exists(seen):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), given)
        return given if seen == path and self._laid.is_at_home() else seen

    def _open(self, original: Function) -> Function:
        def open_(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            path = self._laid.path(file)
            if path is None or not isinstance(mode, str):
                return original(file, mode, *args, **kwargs)
            if not set(mode) & set("wax+"):
                return original(self._found(file, path), mode, *args, **kwargs)
            where = self._laid.written(path, keeps="w" not in mode)
            return original(where, mode, *args, **kwargs)

        return open_

    def _os_open(self, original: Function) -> Function:
        def open_(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
            writes = bool(flags & WRITE_FLAGS) and not flags & UNNAMED
            if writes:
                _refuse(dir_fd)
            follow = not flags & getattr(os, "O_NOFOLLOW", 0)
            here = None if dir_fd is not None else self._laid.path(path, follow=follow)
            if here is not None and writes:
                path = self._laid.written(here, keeps=not flags & os.O_TRUNC)
            elif here is not None and not flags & UNNAMED:
                path = self._found(path, here)
            return int(original(path, flags, mode, dir_fd=dir_fd))

        return open_

    def _look(self, original: Function, *, follow: bool = True) -> Function:
        def look(path: Any, *args: Any, **kwargs: Any) -> Any:
            follows = follow and kwargs.get("follow_symlinks", True)
            here = None
            if kwargs.get("dir_fd") is None:
                here = self._laid.path(path, follow=follows)
            return original(path if here is None else self._found(path, here), *args, **kwargs)

        return look

    def _access(self, original: Function) -> Function:
        def access(path: Any, mode: int, **kwargs: Any) -> bool:
            here = None if kwargs.get("dir_fd") is not None else self._laid.path(path)
            return bool(original(path if here is None else self._laid.seen(here), mode, **kwargs))

        return access

    def _change(self, original: Function) -> Function:
        def change(path: Any, *args: Any, **kwargs: Any) -> Any:
            _refuse(kwargs.get("dir_fd"))
            here = self._laid.path(path, follow=kwargs.get("follow_symlinks", True))
            if here is None:
                return original(path, *args, **kwargs)
            if is_a(stat.S_ISDIR, self._laid.seen(here)):
                return None  # its date and mode are nobody's answer
            return original(self._laid.written(here, keeps=True), *args, **kwargs)

        return change

    def _remove(self, original: Function) -> Function:
        def remove(path: Any, *, dir_fd: int | None = None) -> None:
            _refuse(dir_fd)
            here = self._laid.path(path, follow=False)
            if here is None:
                original(path)
                return
            found = self._laid.seen(here)
            if not exists(found):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            if is_a(stat.S_ISDIR, found):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            if found != here:
                original(found)
            self._laid.remove(here)

        return remove

    def _rename(self, original: Function) -> Function:
        def rename(src: Any, dst: Any, *, src_dir_fd: Any = None, dst_dir_fd: Any = None) -> None:
            _refuse(src_dir_fd)
            _refuse(dst_dir_fd)
            laid = self._laid
            old, new = laid.path(src, follow=False), laid.path(dst, follow=False)
            if old is not None and is_a(stat.S_ISDIR, old) and laid.is_real(old):
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), src)  # some of it is real
            moved = src if old is None else laid.written(old, keeps=True)
            original(moved, dst if new is None else laid.written(new, keeps=False))
            for path in (old, new):
                if path is not None:
                    laid.remove(path)  # what lies over it is seen

        return rename

    def _mkdir(self, original: Function) -> Function:
        def mkdir(path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
            _refuse(dir_fd)
            here = self._laid.path(path, follow=False)
            if here is None:
                original(path, mode)
                return
            if self._laid.is_there(here):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            self._laid.make_parent(here)
            original(self._laid.aside(here), mode)
            self._laid.forget_links()

        return mkdir

    def _rmdir(self, original: Function) -> Function:
        def rmdir(path: Any, *, dir_fd: int | None = None) -> None:
            _refuse(dir_fd)
            here = self._laid.path(path, follow=False)
            if here is None:
                original(path)
                return
            if not is_a(stat.S_ISDIR, self._laid.seen(here)):
                original(self._laid.aside(here))  # raises
            if self._laid.names(here):
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
            if exists(self._laid.aside(here)):
                original(self._laid.aside(here))
            self._laid.remove(here)

        return rmdir

    def _symlink(self, original: Function) -> Function:
        def symlink(src: Any, dst: Any, target_is_directory: bool = False, **kwargs: Any) -> None:
            _refuse(kwargs.get("dir_fd"))
            here = self._laid.path(dst, follow=False)
            if here is not None and self._laid.is_there(here):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), src, None, dst)
            original(src, dst if here is None else self._laid.written(here, keeps=False))
            self._laid.forget_links()

        return symlink

    def _link(self, original: Function) -> Function:
        """Of a copy: two names for one real file would be a way to it."""

        def link(src: Any, dst: Any, **kwargs: Any) -> None:
            _refuse(kwargs.get("src_dir_fd"))
            _refuse(kwargs.get("dst_dir_fd"))
            old, new = self._laid.path(src, follow=False), self._laid.path(dst, follow=False)
            if new is not None and self._laid.is_there(new):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), src, None, dst)
            source = src if old is None else self._laid.written(old, keeps=True)
            original(source, dst if new is None else self._laid.written(new, keeps=False))

        return link

    def _chdir(self, original: Function) -> Function:
        def chdir(path: Any) -> None:
            here = self._laid.path(path)
            original(path if here is None else self._found(path, here))
            self._laid.here = here or self._laid.real_getcwd()

        return chdir

    def _getcwd(self, original: Function) -> Function:
        return lambda: self._laid.here

    def _listdir(self, original: Function) -> Function:
        def listdir(path: Any = ".") -> list[Any]:
            here = self._laid.path("." if path is None else path)
            if here is None or not is_a(stat.S_ISDIR, self._laid.seen(here)):
                return list(original(path if here is None else self._found(path, here)))
            names = sorted(self._laid.names(here))
            return [os.fsencode(n) for n in names] if isinstance(path, bytes) else list(names)

        return listdir

    def _scandir(self, original: Function) -> Function:
        def scandir(path: Any = ".") -> Any:
            given = "." if path is None else path
            here = self._laid.path(given)
            if here is None or isinstance(given, bytes):
                return original(given)
            if not is_a(stat.S_ISDIR, self._laid.seen(here)):
                return original(self._found(path, here))  # raises
            names = sorted(self._laid.names(here))
            return Entries(Entry(os.path.join(os.fspath(given), name), name) for name in names)

        return scandir

    def _save(self, original: Function) -> Function:
        def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
            path = self._laid.path(f) if isinstance(f, (str, os.PathLike)) else None
            where = f if path is None else self._laid.written(path, keeps=False)
            original(obj, where, *args, **kwargs)

        return save

    def _connect(self, original: Function) -> Function:
        def connect(database: Any, *args: Any, **kwargs: Any) -> Any:
            named = kwargs.get("uri") or os.fsdecode(database) in ("", ":memory:")
            path = None if named else self._laid.path(database)
            where = database if path is None else self._laid.written(path, keeps=True)
            return original(where, *args, **kwargs)

        return connect


def _refuse(dir_fd: int | None) -> None:
    if dir_fd is not None:
        raise PermissionError(errno.EPERM, "a second run changes nothing by a folder's number")

"""Tells when a module has been imported, however that comes about, and leaves no trace of it."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

_bootstrap: Any = importlib._bootstrap
CALL = "_call_with_frames_removed"


class AfterImport:
    """Calls back whenever the module's code has run: a script without the module pays nothing.
    The callback is told whether the program may have used the module before.

    A finder in `sys.meta_path` sees questions, not imports: many programs only ask, finders of
    others come first, and a loader with a method replaced is no longer equal to its like. But each
    file that is imported is executed by one function of importlib's, whoever has found it: by the
    statement, from C, by hand, at first use, or once more. That one is replaced; the specs, loaders
    and finders that the program sees are Python's own.
    """

    def __init__(
        self, name: str, callback: Callable[[bool], None], on_broken: Callable[[], None]
    ) -> None:
        self._name = name
        self._callback = callback
        self._on_broken = on_broken  # a second import has failed, after one that had not
        self._known: ModuleType | None = None  # what the callback was told of
        self._others: dict[str | None, Callable[[], None]] = {}
        self._loading = 0
        self._pid = os.getpid()  # a forked process is another program
        self._original: Callable[..., Any] | None = None
        self._replacement: Callable[..., Any] | None = None

    def install(self) -> None:
        if self._replacement is not None:
            return
        self._original = getattr(_bootstrap, CALL)
        self._replacement = self._wrapped(self._original)
        setattr(_bootstrap, CALL, self._replacement)
        self._look(late=False)  # the program has not begun

    def also(self, name: str, callback: Callable[[], None]) -> None:
        """Once for another module, which is being imported now."""
        self._others[name] = callback

    def remove(self) -> None:
        if getattr(_bootstrap, CALL) is self._replacement:
            setattr(_bootstrap, CALL, self._original)

    def _wrapped(self, original: Any) -> Callable[..., Any]:
        nested = original.__closure__ is not None  # importlib's own has none: another one of these

        def call_with_frames_removed(f: Any, /, *args: Any, **kwargs: Any) -> Any:
            namespace = args[1] if f is exec and len(args) == 2 else {}
            if nested:
                f, args = original, (f, *args)
            if namespace.get("__name__") != self._name:
                result = f(*args, **kwargs)
                self._look()
                if self._others and (told := self._others.pop(namespace.get("__name__"), None)):
                    told()
                return result
            self._loading += 1
            try:
                f(*args, **kwargs)
            except BaseException:
                self._loading -= 1
                self._failed(namespace)
                raise
            self._loading -= 1
            self._ran(namespace)

        # Python hides this function of its own from tracebacks and warnings, by name and file; and
        # as it does the original's work itself, the program's stack is not a frame deeper either.
        call_with_frames_removed.__code__ = call_with_frames_removed.__code__.replace(
            co_filename=original.__code__.co_filename, co_name=CALL, co_qualname=CALL
        )
        return call_with_frames_removed

    def _ran(self, namespace: dict[str, Any]) -> None:
        module = self._module()
        if module is not None and _namespace(module) is namespace:
            self._tell(module, late=self._known is not None)

    def _failed(self, namespace: dict[str, Any]) -> None:
        """A reload that fails half-way leaves a module that is in use."""
        if self._known is None or os.getpid() != self._pid:
            return  # it may be tried again
        if _namespace(self._known) is namespace:
            self._tell(self._known, late=True)
        else:
            self._on_broken()

    def _look(self, *, late: bool = True) -> None:
        """It was there before, or a loader of somebody's has executed it in its own way."""
        module = self._module()
        if module is None or module is self._known or self._loading:
            return
        spec = _namespace(module).get("__spec__")  # a stand-in made by hand has none
        if spec is not None and not getattr(spec, "_initializing", False):
            self._tell(module, late=late)

    def _module(self) -> ModuleType | None:
        """Without touching it: one that is loaded at its first use stays unloaded."""
        found = sys.modules.get(self._name)
        is_loaded = isinstance(found, ModuleType) and type(found).__name__ != "_LazyModule"
        return found if is_loaded else None

    def _tell(self, module: ModuleType, *, late: bool) -> None:
        self._known = module
        if os.getpid() == self._pid:
            self._callback(late)


def _namespace(module: ModuleType) -> dict[str, Any]:
    namespace: dict[str, Any] = ModuleType.__getattribute__(module, "__dict__")
    return namespace

"""CuPy, JAX and SciPy in a program that runs: each result is looked at, and the first bad one noted.

These libraries say nothing of a division by zero. Their functions and the operators of their arrays
are replaced by such that look; types, results and what the program sees of an object stay.
"""

from __future__ import annotations

import functools
import math
import os
import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from whynan.arrays.evidence import evidence_of, unseen_of
from whynan.arrays.inside_jax import InsideJax
from whynan.arrays.libraries import LIBRARIES, Library
from whynan.arrays.numpy_errors import Event, places_of
from whynan.arrays.place import programs_own, unseen_by_warnings
from whynan.model import Evidence, OpRecord, Site
from whynan.ops.table import OPERATORS as PYTHON
from whynan.ops.table import row
from whynan.seam.patches import Patches
from whynan.source.positions import site_at

MAX_LOOKS = 3  # at what one line makes
MAX_BYTES = 64 * 2**20  # kept of an operand that is about to be overwritten
BINARY = tuple(op.python[1] for op in PYTHON.values() if "compares" not in op.does)


class LibraryWatch:
    """`add()` when a library has been imported; `happened(event)` is told of each first bad result."""

    def __init__(
        self, happened: Callable[[Event], None], quietly: Callable[[Callable[[], Any]], None],
        is_looking: Callable[[], bool], watch_writers: Callable[[Any], None],
    ) -> None:  # fmt: skip
        self._happened, self._quietly, self._is_looking = happened, quietly, is_looking
        self._watch_writers = watch_writers
        self._patches = Patches()
        self._here = threading.local()
        self._originals: dict[tuple[str, str], Any] = {}
        self._known: set[str] = set()
        self._whole: set[Library] = set()
        self._looks: dict[tuple[types.CodeType, int], int] = {}
        self._pid = os.getpid()

    def add(self, name: str) -> None:
        """The functions of a module that was imported, those of its library that are there, too."""
        library = next(lib for lib in LIBRARIES if name in (lib.name, *lib.modules))
        # A module may be imported before its library is whole.
        if os.getpid() == self._pid and library.name in {name, *self._known}:
            self._quietly(lambda: self._add(library))

    def stop(self) -> None:
        self._patches.restore()
        self._known.clear()
        self._whole.clear()

    # ---- putting it on -------------------------------------------------------------------------

    def _add(self, library: Library) -> None:
        for module in library.modules:
            there = sys.modules.get(module)
            if there is not None and module not in self._known:
                self._known.add(module)
                self._replace_functions(library, there)
        if library not in self._whole:
            self._known.add(library.name)
            self._whole.add(library)
            if not library.of_numpy:
                self._replace_operators(library)
                self._replace_transforms(library)
                self._watch_writers(sys.modules[library.modules[0]])
            if library.name == "jax":  # whose own notes of where something was written leave us out
                from jax.extend.source_info_util import register_exclusion

                register_exclusion(os.path.dirname(os.path.dirname(__file__)))

    def _replace_functions(self, library: Library, module: Any) -> None:
        for name, found in list(vars(module).items()):
            if name.startswith("_") or isinstance(found, (type, types.ModuleType)):
                continue
            if not callable(found) or type(found).__module__ == "typing":
                continue
            if library.of_numpy and type(found) is not types.FunctionType:
                continue
            self._originals.setdefault((library.name, name), found)
            self._put(module, name, self._looking(library, name, found))

    def _looking(self, library: Library, name: str, original: Callable[..., Any]) -> Any:
        takes = getattr(
            original, "nin", None
        )  # of a ufunc, which may be given its output after them

        @unseen_by_warnings
        def call(*args: Any, **kwargs: Any) -> Any:
            out = kwargs.get("out")
            if takes is not None and len(args) > takes:
                args, out = args[:takes], args[takes]
                kwargs = {**kwargs, "out": out}
            return self._run(library, name, original, args, kwargs, out=out)

        if type(original) is types.FunctionType:
            return functools.wraps(original)(call)
        return Stand(original, call)

    def _put(self, owner: Any, name: str, replacement: Any) -> None:
        original = vars(owner)[name]
        setattr(owner, name, replacement)

        def back() -> None:
            if vars(owner).get(name) is replacement:
                setattr(owner, name, original)

        self._patches.on_restore(back)

    def _replace_operators(self, library: Library) -> None:
        """Of the arrays, and those of their methods that are functions of the library as well."""
        for kind in library.array_types():
            for word in BINARY:
                self._replace_method(library, kind, f"__{word}__", word)
                self._replace_method(library, kind, f"__r{word}__", word, swapped=True)
                self._replace_method(library, kind, f"__i{word}__", word, writes=True)
            for name in dir(kind):
                known = row(name)
                if not name.startswith("_") and (known.fails or known.domain or "casts" in known.does):  # fmt: skip
                    self._replace_method(library, kind, name, name)

    def _replace_method(
        self, library: Library, kind: type, method: str, name: str, *,
        swapped: bool = False, writes: bool = False,
    ) -> None:  # fmt: skip
        if not callable(getattr(kind, method, None)) or hasattr(object, method):
            return

        def wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
            @unseen_by_warnings
            def operation(itself: Any, *args: Any, **kwargs: Any) -> Any:
                given, out = (itself, *args), itself if writes else None
                return self._run(library, name, original, given, kwargs, swapped=swapped, out=out)

            return operation

        try:
            self._patches.wrap(kind, method, wrapper)
        except (TypeError, AttributeError):  # a type of C's that nobody can change
            return

    def _replace_transforms(self, library: Library) -> None:
        module: Any = sys.modules[library.name]
        for name in library.transforms:
            if name in vars(module):
                self._put(module, name, self._transform(library, name, getattr(module, name)))

    def _transform(self, library: Library, name: str, original: Callable[..., Any]) -> Any:
        @functools.wraps(original)
        def transform(*args: Any, **kwargs: Any) -> Any:
            made = original(*args, **kwargs)
            if self._is_off() or not callable(made) or not args or isinstance(made, Stand):
                return made
            if getattr(type(made), "__name__", "") == "partial":  # `jit(static_argnums=0)`
                return made
            return self._looking(library, name, made)

        return transform

    # ---- what it does --------------------------------------------------------------------------

    def _is_off(self) -> bool:
        return not self._known or self._is_looking() or getattr(self._here, "inside", False)

    @unseen_by_warnings
    def _run(
        self, library: Library, name: str, function: Callable[..., Any], args: tuple[Any, ...],
        kwargs: dict[str, Any], *, swapped: bool = False, out: Any = None,
    ) -> Any:  # fmt: skip
        if self._is_off():
            return function(*args, **kwargs)
        given, lost = _kept(args, out)
        with self._inside():
            result = function(*args, **kwargs)
        frame = sys._getframe(2)
        kwargs = {k: v for k, v in kwargs.items() if k != "out"}
        self._quietly(lambda: self._look(
            library, name, function, given[::-1] if swapped else given, kwargs, result, frame, lost
        ))  # fmt: skip
        return result

    @contextmanager
    def _inside(self) -> Iterator[None]:
        self._here.inside = True
        try:
            yield
        finally:
            self._here.inside = False

    def _look(
        self, library: Library, name: str, function: Callable[..., Any], args: tuple[Any, ...],
        kwargs: dict[str, Any], result: Any, frame: FrameType | None, lost: bool,
    ) -> None:  # fmt: skip
        kinds = library.array_types()
        if result is NotImplemented:
            return
        results = [result] if type(result) in kinds else library.leaves(result)
        if not any(type(x) in kinds and self._is_bad(library, x) for x in results):
            return
        user = programs_own(frame)
        if user is None or lost:
            return
        at = (user.f_code, user.f_lasti)
        self._looks[at] = self._looks.get(at, 0) + 1
        if self._looks[at] > MAX_LOOKS:
            return
        with self._inside():
            found, followers = self._explained(library, name, function, args, kwargs, result, user)
        if found is None:
            return
        bad = any(o.stats and o.stats.nonfinite for o in found.origin.inputs)
        self._happened(Event(found, "", places_of(user), bad, followers))

    def _is_bad(self, library: Library, array: Any) -> bool:
        return library.is_bad(array, lambda name: self._originals[library.name, name])

    def _explained(
        self, library: Library, name: str, function: Callable[..., Any], args: tuple[Any, ...],
        kwargs: dict[str, Any], result: Any, user: FrameType,
    ) -> tuple[Evidence | None, list[OpRecord]]:  # fmt: skip
        """With what the value then turned into, inside the same call."""
        if row(name).name and type(result) in library.array_types():
            site = site_at(user.f_code, user.f_lasti)
            return self._of_one(library, name, args, kwargs, result, site), []
        given = library.leaves([args, kwargs])
        has_numbers = any(hasattr(x, "dtype") or isinstance(x, float) for x in given)
        if not has_numbers or any(self._is_odd(library, x, nan=True) for x in given):
            return None, []
        if library.of_numpy:
            bad = next(x for x in library.leaves(result) if self._is_bad(library, x))
            arrays = [
                x for x in given if getattr(x, "dtype", None) is not None and x.dtype.kind in "fiu"
            ]
            site, why = site_at(user.f_code, user.f_lasti), f"which step inside `{name}` made it"
            return unseen_of(bad, arrays, site, "scipy.unseen", why), []
        if library.name != "jax":
            return None, []
        inside = InsideJax(user)
        return inside.first(function, args, kwargs, result), inside.turned_into

    def _of_one(
        self, library: Library, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any,
        site: Site,
    ) -> Evidence | None:  # fmt: skip
        """Of an operation that is known."""
        inputs = [a for a in args if hasattr(a, "dtype") or isinstance(a, (int, float))]
        others = [x for x in library.leaves([args, kwargs]) if not any(x is a for a in inputs)]
        if any(self._is_odd(library, x) for x in others):
            return None
        if not (row(name).fails or any(hasattr(a, "dtype") for a in inputs)):
            return None
        for infinite in (False, True):
            found = evidence_of(name, inputs, result, site, library.name, {}, infinite=infinite)
            if found is not None:
                return found
        return None

    def _is_odd(self, library: Library, x: Any, *, nan: bool = False) -> bool:
        """Whether it was not finite already; with `nan`, only whether NaN was in it."""
        import numpy as np

        if isinstance(x, float):
            return math.isnan(x) if nan else not math.isfinite(x)
        if isinstance(x, (np.ndarray, np.generic)) and x.dtype.kind == "f":
            return bool(np.isnan(x).any() if nan else not np.isfinite(x).all())
        if type(x) in library.array_types() and self._is_bad(library, x):
            return not nan or bool(np.isnan(np.asarray(x)).any())
        return False


def _kept(args: tuple[Any, ...], out: Any) -> tuple[tuple[Any, ...], bool]:
    """The operands as they are before the result is written over one of them, and whether one is lost."""
    targets = out if isinstance(out, tuple) else (out,)
    over = [any(a is t for t in targets) and hasattr(a, "copy") for a in args]
    if any(o and getattr(a, "nbytes", 0) > MAX_BYTES for o, a in zip(over, args, strict=True)):
        return args, True
    return tuple(a.copy() if o else a for o, a in zip(over, args, strict=True)), False


class Stand:
    """In the place of a callable object of a library; in everything but a call it is that object."""

    def __init__(self, original: Any, call: Callable[..., Any]) -> None:
        object.__setattr__(self, "original_of_whynan", original)
        object.__setattr__(self, "call_of_whynan", call)

    @property
    def __class__(self) -> type:  # isinstance asks for it
        return type(object.__getattribute__(self, "original_of_whynan"))

    @__class__.setter
    def __class__(self, kind: type) -> None:
        raise TypeError("__class__ assignment is not supported")

    @unseen_by_warnings
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return object.__getattribute__(self, "call_of_whynan")(*args, **kwargs)

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        bound = hasattr(type(object.__getattribute__(self, "original_of_whynan")), "__get__")
        return self if owner is None or not bound else types.MethodType(self, owner)

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "original_of_whynan"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(object.__getattribute__(self, "original_of_whynan"), name, value)

    def __repr__(self) -> str:
        return repr(object.__getattribute__(self, "original_of_whynan"))

    def __dir__(self) -> list[str]:
        return dir(object.__getattribute__(self, "original_of_whynan"))

    def __reduce_ex__(self, protocol: Any) -> Any:
        original = object.__getattribute__(self, "original_of_whynan")
        return original.__reduce_ex__(protocol)

"""`whynan.trace_arrays`: an array library whose first non-finite result is named."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, Literal

from whynan.arrays.evidence import evidence_of
from whynan.arrays.place import site_of
from whynan.ops.table import OPERATORS as PYTHON
from whynan.seam.hush import hushed

_WRITTEN = [op for op in PYTHON.values() if "compares" not in op.does]
UNARY = ("neg", "abs", "pos", "invert")
OPERATORS = tuple(op.python[1] for op in _WRITTEN if op.python[1] not in UNARY)
COMPARISONS = tuple(op.python[1] for op in PYTHON.values() if "compares" in op.does)
BITWISE = ("and", "or", "xor")
SHIFTS = ("lshift", "rshift")


class TracedNamespace:
    """The library's functions under their own names; see `trace_arrays`."""

    def __init__(self, library: Any, on_anomaly: str, name: str) -> None:
        self._library, self._on_anomaly, self._name = library, on_anomaly, name

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._library, name)
        if isinstance(found, ModuleType):
            return TracedNamespace(found, self._on_anomaly, self._name)
        if isinstance(found, type) or not callable(found):
            return found
        return self._traced(name, found)

    def __dir__(self) -> list[str]:
        return dir(self._library)

    def __repr__(self) -> str:
        return f"<{self._name}, traced by whynan>"

    def _traced(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            return self._run(name, function, args, kwargs)

        return call

    def _run(
        self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        with hushed(RuntimeWarning):  # the library's own, about the same thing, says less
            result = function(*_bare(args), **_bare(kwargs))
        inputs = [a for a in args if isinstance(a, (TracedArray, int, float))]
        traced = any(isinstance(a, TracedArray) for a in inputs)
        site = site_of(sys._getframe(1)) if traced and self._is_bad(result) else None
        if site is not None:
            self._examine(name, inputs, result, site)
        where = f"made by `{name}`"
        return self._wrapped(result, where)

    def _wrapped(self, result: Any, source: str) -> Any:
        if isinstance(result, (list, tuple)) and not hasattr(result, "dtype"):
            parts = [self._wrapped(part, source) for part in result]
            if hasattr(result, "_fields"):
                return type(result)(*parts)
            return type(result)(parts)
        return TracedArray(result, self, source) if _is_array(result) else result

    def _is_bad(self, result: Any) -> bool:
        if not _is_array(result):
            return False
        kind = str(getattr(result, "dtype", ""))
        if not any(word in kind for word in ("float", "complex")):
            return False
        xp = self._library if hasattr(self._library, "isfinite") else sys.modules[self._name]
        return not bool(xp.all(xp.isfinite(result)))

    def _examine(self, name: str, inputs: list[Any], result: Any, site: Any) -> None:
        bare = [_bare(x) for x in inputs]
        made = {i: x._source for i, x in enumerate(inputs) if isinstance(x, TracedArray) and x._source}  # fmt: skip
        evidence = evidence_of(name, bare, result, site, self._name, made)
        if evidence is None:
            return
        from whynan.diagnosis.engine import diagnose
        from whynan.errors import AnomalyFound
        from whynan.recording import Recording

        found = diagnose(Recording(evidence=(evidence,)), script=site.file)
        if self._on_anomaly == "stop":
            raise AnomalyFound(found)
        warnings.warn(str(found), RuntimeWarning, stacklevel=4)


def _is_array(x: Any) -> bool:
    return hasattr(x, "dtype") and hasattr(x, "shape") and not isinstance(x, type)


def _bare(x: Any) -> Any:
    """The library's own arrays again, also inside containers."""
    if isinstance(x, TracedArray):
        return x._value
    if isinstance(x, (list, tuple)) and not hasattr(x, "_fields"):
        return type(x)(_bare(part) for part in x)
    if isinstance(x, dict):
        return {key: _bare(part) for key, part in x.items()}
    return x


class TracedArray:
    """An array that knows its namespace, so that operators are seen too."""

    __array_priority__ = 1000.0  # NumPy lets this class handle `numpy_array / traced`
    __array_ufunc__ = None

    def __init__(self, value: Any, namespace: TracedNamespace, source: str) -> None:
        self._value, self._namespace, self._source = value, namespace, source

    def __array_namespace__(self, api_version: str | None = None) -> TracedNamespace:
        return self._namespace

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        import numpy as np

        return np.asarray(self._value, dtype=dtype)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        found = getattr(self._value, name)
        if not callable(found):
            return self._namespace._wrapped(found, self._source)

        def method(*args: Any, **kwargs: Any) -> Any:
            def run(_: Any, *rest: Any, **options: Any) -> Any:
                return found(*rest, **options)

            return self._namespace._run(name, run, (self, *args), kwargs)

        return method

    def __getitem__(self, key: Any) -> Any:
        return self._namespace._wrapped(self._value[_bare(key)], self._source)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._value[_bare(key)] = _bare(value)

    def __iter__(self) -> Iterator[Any]:
        return (self._namespace._wrapped(part, self._source) for part in self._value)

    def __len__(self) -> int:
        return len(self._value)

    def __float__(self) -> float:
        return float(self._value)

    def __int__(self) -> int:
        return int(self._value)

    def __index__(self) -> int:
        return int(self._value.__index__())

    def __bool__(self) -> bool:
        return bool(self._value)

    def __repr__(self) -> str:
        return repr(self._value)

    __hash__ = None  # type: ignore[assignment] # like every array


def _operator(name: str, *, swapped: bool = False) -> Callable[..., Any]:
    import operator

    function = getattr(operator, name if name not in ("and", "or") else name + "_")

    def apply(self: TracedArray, *others: Any) -> Any:
        operands = (*others, self) if swapped else (self, *others)
        return self._namespace._run(name, function, operands, {})

    return apply


for _name in (*OPERATORS, *UNARY, *COMPARISONS, *BITWISE, *SHIFTS):
    setattr(TracedArray, f"__{_name}__", _operator(_name))
for _name in (*OPERATORS, *BITWISE):
    setattr(TracedArray, f"__r{_name}__", _operator(_name, swapped=True))


def trace_arrays(
    namespace: Any, *, on_anomaly: Literal["stop", "warn"] = "stop"
) -> TracedNamespace:
    """An array library in which the first operation that makes a NaN or infinity is named.

        import numpy, whynan

        np = whynan.trace_arrays(numpy)       # or cupy, jax.numpy, any array-API namespace
        x = np.asarray([1.0, 2.0, 0.0])
        np.log(x) / 3                         # AnomalyFound: the line, the operands, the reason

    The result of every function and operator is looked at, which costs a pass over it and, on a
    GPU, waits for it: use it to find a fault. A non-finite value that was already in the data, or
    that the program wrote itself, is passed on in silence. `on_anomaly="warn"` warns and goes on.
    """
    name = getattr(namespace, "__name__", type(namespace).__name__)
    return TracedNamespace(namespace, on_anomaly, name)

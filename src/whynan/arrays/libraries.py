"""Libraries that make bad values in silence: where their functions and arrays are, and which are bad.

None is ever imported here: it is in `sys.modules` when a program has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

KINDS = ("float", "complex")


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """One library of arrays; `modules` are those whose functions a program calls."""

    name: str
    modules: tuple[str, ...]
    transforms: tuple[str, ...] = ()  # what makes a function out of a function
    of_numpy: bool = False  # its arrays are NumPy's, whose own operations NumPy speaks of

    def array_types(self) -> tuple[type, ...]:
        """Those that hold numbers, not what stands for them while a function is traced."""
        if self.of_numpy:
            np = sys.modules["numpy"]
            return (np.ndarray, np.float64, np.float32)
        if self.name == "cupy":
            return (sys.modules["cupy"].ndarray,)
        kinds = sys.modules["jax"].Array.__subclasses__()
        return tuple(kind for kind in kinds if kind.__name__ == "ArrayImpl")

    def leaves(self, value: Any) -> list[Any]:
        """What a container holds."""
        if self.name == "jax":
            return list(sys.modules["jax"].tree_util.tree_leaves(value))
        return [*_inside(value)]

    def is_bad(self, array: Any, original: Callable[[str], Any]) -> bool:
        """Whether a NaN or infinity is in it; `original`: the library's functions as they were."""
        if not is_floating(array):
            return False
        if self.of_numpy:  # an infinite statistic may be one
            return bool(sys.modules["numpy"].isnan(array).any())
        if self.name == "jax":
            if array.is_deleted() or not array.is_fully_addressable:
                return False
            if all(device.platform == "cpu" for device in array.devices()):
                import numpy as np

                return not bool(np.isfinite(np.asarray(array)).all())  # the very memory
        finite = original("all")(original("isfinite")(array))
        return not bool(finite.get() if hasattr(finite, "get") else finite)


LIBRARIES = (
    Library(
        name="cupy",
        modules=(
            "cupy", "cupy.linalg", "cupy.fft", "cupyx.scipy.special", "cupyx.scipy.linalg",
            "cupyx.scipy.stats", "cupyx.scipy.ndimage", "cupyx.scipy.signal",
        ),
    ),
    Library(
        name="jax",
        modules=(
            "jax.numpy", "jax.numpy.linalg", "jax.numpy.fft", "jax.nn", "jax.lax", "jax.lax.linalg",
            "jax.scipy.special", "jax.scipy.linalg", "jax.scipy.stats", "jax.scipy.stats.norm",
            "jax.scipy.optimize", "jax.scipy.signal",
        ),
        transforms=(
            "jit", "pmap", "vmap", "grad", "value_and_grad", "jacfwd", "jacrev", "jacobian", "hessian",
        ),
    ),
    Library(name="scipy", of_numpy=True, modules=("scipy.stats",)),
)  # fmt: skip


# What is imported when there is something new to look at.
MODULES = tuple(dict.fromkeys(name for lib in LIBRARIES for name in (lib.name, *lib.modules)))


def library_of(value: object) -> Library | None:
    """The library that an array is of."""
    top = type(value).__module__.split(".")[0].removesuffix("lib")  # jaxlib's, too
    named = (lib for lib in LIBRARIES if lib.name == top and not lib.of_numpy)
    found = next((lib for lib in named if top in sys.modules), None)
    is_one = found is not None and type(value) in found.array_types()
    return found if is_one else None


def is_floating(array: Any) -> bool:
    return any(kind in str(getattr(array, "dtype", "")) for kind in KINDS)


def _inside(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for part in value:
            yield from _inside(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from _inside(part)
    elif hasattr(value, "statistic"):  # of a test of SciPy's
        yield from (value.statistic, getattr(value, "pvalue", None))
    else:
        yield value

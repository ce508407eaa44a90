"""Every random state that a step may draw from: saved in microseconds, put back exactly."""

from __future__ import annotations

import ctypes
import gc
import random
import struct
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from whynan.seam.devices import put_back_random_states, random_states
from whynan.seam.patches import Patches
from whynan.seam.threads import is_alone

# The bytes of a Mersenne twister: 624 words of state and a position. Copying them is fifty times
# as fast as NumPy's own get_state(), twenty times as fast as random.getstate().
_WORDS = 624
_BYTES = 4 * (_WORDS + 1)
MAX_GENERATORS = 8  # more would cost more than a replay is worth
_Memory = ctypes.c_char * _BYTES
_Gaussian = struct.Struct("@i4xd")  # whether there is one, and which
_generator = torch.default_generator
_OBJECT_HEAD = object.__basicsize__
Access = tuple[Callable[[], Any], Callable[[Any], None]]


class Saved(NamedTuple):
    """One moment of all random states."""

    torch: torch.Tensor
    python: Any
    numpy: Any
    generators: list[Any]
    devices: Any


def same_states(one: Saved, other: Saved) -> bool:
    """Whether nothing was drawn between the two."""
    devices = zip(one.devices or (), other.devices or (), strict=False)
    return (
        torch.equal(one.torch, other.torch)
        and all(torch.equal(a, b) for a, b in devices)
        and (one.python, str(one.numpy), str(one.generators))
        == (other.python, str(other.numpy), str(other.generators))
    )


class Randomness:
    """Saves and restores torch, every device, `random`, and NumPy old and new."""

    def __init__(self) -> None:
        self._save_python, self._load_python = _python_state(random._inst)  # the module's own
        self._numpy: Access | None = None
        self._known: set[int] = {id(random._inst)}
        self._generators: list[Access] = []

    def install(self, patches: Patches) -> None:
        """Hear of NumPy's Generators as they are made."""
        self.look_for_generators()
        numpy = sys.modules.get("numpy")
        if numpy is not None and hasattr(numpy, "random"):
            patches.wrap(numpy.random, "default_rng", self._wrap_maker)

    def _wrap_maker(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def default_rng(*args: Any, **kwargs: Any) -> Any:
            generator = original(*args, **kwargs)
            self.know(generator)
            return generator

        return default_rng

    def look_for_generators(self) -> None:
        """That the program has made for itself, among all objects there are."""
        if not is_alone():  # others may be in the middle of making some
            return
        numpy: Any = sys.modules.get("numpy.random")
        kinds = {random.Random}
        if numpy is not None:
            self._know_numpy(numpy)
            kinds |= {numpy.Generator, numpy.RandomState}
        for found in gc.get_objects():
            if type(found) in kinds:
                self.know(found)

    def know(self, generator: Any) -> None:
        """One of the program's own: torch's, NumPy's or Python's."""
        if id(generator) in self._known or len(self._generators) >= MAX_GENERATORS:
            return
        self._known.add(id(generator))  # which stays its own: the generator is kept
        self._generators.append(_access(generator))

    def _know_numpy(self, module: Any) -> None:
        if self._numpy is None:
            legacy = module.mtrand._rand
            self._known.add(id(legacy))
            self._numpy = _numpy_state(legacy)

    def save(self) -> Saved:
        if self._numpy is None and "numpy.random" in sys.modules:
            self._know_numpy(sys.modules["numpy.random"])
        return Saved(
            _generator.get_state(),
            self._save_python(),
            self._numpy[0]() if self._numpy else None,
            [save() for save, _ in self._generators] if self._generators else [],
            random_states(),
        )

    def restore(self, saved: Saved) -> None:
        _generator.set_state(saved.torch)
        self._load_python(saved.python)
        if self._numpy and saved.numpy is not None:
            self._numpy[1](saved.numpy)
        for (_, load), state in zip(self._generators, saved.generators, strict=False):
            load(state)
        if saved.devices is not None:
            put_back_random_states(saved.devices)


def _access(generator: Any) -> Access:
    """How its state is read and written."""
    if isinstance(generator, torch.Generator):
        return generator.get_state, generator.set_state  # type: ignore[return-value]  # the generator
    if isinstance(generator, random.Random):
        return _python_state(generator)
    if hasattr(generator, "set_state"):
        return _numpy_state(generator)
    bits = generator.bit_generator
    return lambda: bits.state, lambda state: setattr(bits, "state", state)


def _python_state(generator: random.Random) -> Access:
    """Read CPython's own struct (a position, then the words) where it proves to be as expected."""
    memory = _Memory.from_address(id(generator) + _OBJECT_HEAD)
    attributes = vars(generator)

    def save() -> tuple[bytes, float | None]:
        return memory.raw, attributes["gauss_next"]

    def load(saved: tuple[bytes, float | None]) -> None:
        position, *words = memoryview(saved[0]).cast("I")
        generator.setstate((3, (*words, position), saved[1]))

    position, *words = memoryview(save()[0]).cast("I")
    if generator.getstate() == (3, (*words, position), save()[1]):
        return save, load
    return generator.getstate, generator.setstate


def _numpy_state(generator: Any) -> Access:
    """A legacy generator; its struct is the words, then the position."""
    state = generator.get_state(legacy=False)
    if state.get("bit_generator") != "MT19937":
        return lambda: generator.get_state(legacy=False), generator.set_state
    memory = _Memory.from_address(generator._bit_generator.ctypes.state_address)
    gaussian = _kept_gaussian(type(generator), generator)

    def save() -> tuple[bytes, bytes]:
        return memory.raw, gaussian.raw

    def load(saved: tuple[bytes, bytes]) -> None:
        *words, position = memoryview(saved[0]).cast("I")
        has_gauss, gauss = _Gaussian.unpack(saved[1])
        now = generator.get_state(legacy=False)
        now |= {"state": {"key": words, "pos": position}, "has_gauss": has_gauss, "gauss": gauss}
        generator.set_state(now)

    if gaussian is None:
        return lambda: generator.get_state(legacy=False), generator.set_state
    *words, position = memoryview(save()[0]).cast("I")
    if list(state["state"]["key"]) == words and state["state"]["pos"] == position:
        return save, load
    return lambda: generator.get_state(legacy=False), generator.set_state


def _kept_gaussian(kind: Any, generator: Any) -> Any:
    """Where a generator keeps the second of two Gaussians: sought in one of ours, by its value."""
    ours = kind(0)
    ours.standard_normal()
    state = ours.get_state(legacy=False)
    wanted = _Gaussian.pack(1, state["gauss"])
    offset = ctypes.string_at(id(ours), kind.__basicsize__).find(wanted)
    if offset < 0 or not state["has_gauss"]:
        return None
    return (ctypes.c_char * _Gaussian.size).from_address(id(generator) + offset)

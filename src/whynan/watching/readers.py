"""The ways a program reads a tensor's value: `item()`, `tolist()`, `numpy()`, `print`."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

import torch

from whynan.hush import collected
from whynan.record.checks import PLAIN, saved_tensors
from whynan.record.output_sink import savers
from whynan.record.patches import Patches
from whynan.record.sites import Frames, capture, is_torch_file
from whynan.record.stats import has_nonfinite

if TYPE_CHECKING:
    from whynan.watching.guard import Guard


class Readers:
    """Tells the guard of every non-finite value that the program takes out of a tensor."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._judged: set[tuple[CodeType, int]] = set()

    def install(self, patches: Patches) -> None:
        patches.wrap(torch.Tensor, "__float__", _warn_at_the_caller)
        for owner, name in savers():
            patches.wrap(owner, name, self._wrap_save)
        patches.wrap(torch.Tensor, "item", self._wrap_item)
        for name in ("tolist", "numpy", "__array__", "__float__"):
            patches.wrap(torch.Tensor, name, self._wrap_reader)
        for name in ("__repr__", "__format__"):
            patches.wrap(torch.Tensor, name, self._wrap_text)

    def _wrap_item(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """An optimizer of torch's calls it for each parameter."""

        def item(tensor: Any) -> Any:
            value = original(tensor)
            if type(value) is float and value - value != 0:
                self._tell(value, sys._getframe(1), tensor)
            return value

        return item

    def _wrap_reader(self, original: Callable[..., Any]) -> Callable[..., Any]:
        guard = self._guard

        def read(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            value = original(tensor, *args, **kwargs)
            if type(value) is float:
                if value - value != 0:
                    self._tell(value, sys._getframe(1), tensor)
            elif guard.looking and not isinstance(value, (int, complex)):
                self._look(tensor, sys._getframe(1))
            return value

        return read

    def _look(self, tensor: Any, frame: FrameType) -> None:
        guard = self._guard
        if not guard.is_the_users():
            return
        bad = guard.quietly(_bad_in, tensor) if guard.looking else math.inf
        if bad is not None:
            self._tell(bad, frame, tensor)

    def _wrap_save(self, original: Callable[..., Any]) -> Callable[..., Any]:
        guard = self._guard

        def save(obj: Any, *args: Any, **kwargs: Any) -> Any:
            if guard.looking and guard.is_the_users() and guard.quietly(_any_nan, obj):
                self._tell(math.nan, sys._getframe(1), None)
            return original(obj, *args, **kwargs)

        return save

    def _wrap_text(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def show(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            text = original(tensor, *args, **kwargs)
            if isinstance(text, str) and ("nan" in text or "inf" in text):
                self._look(tensor, sys._getframe(1))
            return text

        return show

    def _tell(self, value: float, frame: FrameType, tensor: torch.Tensor | None) -> None:
        guard = self._guard
        if not guard.is_the_users() or is_torch_file(frame.f_code.co_filename):
            return  # torch reads for its own purposes
        place = (frame.f_code, frame.f_lasti)
        if not guard.looking:
            self._judged.add(place)  # the recorder is on, and knows whether that is harm
        elif value != value or (place not in self._judged and not self._is_written(tensor)):
            guard.read(value, capture(frame))

    def _is_written(self, tensor: torch.Tensor | None) -> bool:
        """An infinity that the program wrote there itself: the best loss so far."""
        return tensor is not None and bool(self._guard.quietly(self._guard.is_written, tensor))

    def has_judged(self, frames: Frames | None) -> bool:
        """Whether an infinity was read at this place while the recorder was on."""
        return frames is not None and (frames.code, frames.lasti) in self._judged


def _warn_at_the_caller(original: Callable[..., Any]) -> Callable[..., Any]:
    """torch warns once of a scalar that requires grad, at the line that called: not at ours."""
    warned = False

    def convert(tensor: Any) -> Any:
        nonlocal warned
        if warned or not tensor.requires_grad:
            return original(tensor)
        warned = True
        with collected() as said:
            value = original(tensor)
        for warning in said:
            warnings.warn(warning.message, warning.category, stacklevel=3)
        return value

    return convert


def _holds_nan(tensor: torch.Tensor) -> bool:
    return is_bad(tensor) and bool(torch.isnan(tensor.detach()).any())


def is_bad(tensor: torch.Tensor) -> bool:
    plain = type(tensor).__torch_dispatch__ in PLAIN and tensor.layout is torch.strided
    return plain and tensor.is_floating_point() and has_nonfinite(tensor.detach())


def _bad_in(tensor: torch.Tensor) -> float | None:
    """NaN; or an infinity, if it is alone or among different finite values. Bounds, masks and
    first minima are meant, and so is -inf among other values: what is ruled out."""
    if not is_bad(tensor):
        return None
    values = tensor.detach()
    if bool(torch.isnan(values).any()):
        return math.nan
    finite = values[torch.isfinite(values)]
    if tensor.numel() > 1 and (finite.numel() < 2 or bool((finite == finite[0]).all())):
        return None
    if tensor.numel() > 1 and not bool((values == math.inf).any()):
        return None
    return math.inf


def _any_nan(saved: Any) -> bool:
    return any(map(_holds_nan, saved_tensors(saved)))

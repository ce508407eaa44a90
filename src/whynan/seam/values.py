"""What a program takes out of tensors: values that it reads, prints or saves, as events."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from whynan.seam.events import Events
from whynan.seam.hush import collected
from whynan.seam.patches import Patches
from whynan.seam.sites import beyond_own, is_torch_file

# How each way to read is called in a report.
READERS = {
    "item": "value read by item()",
    "__float__": "value read by float()",
    "numpy": "array handed to NumPy",
    "__array__": "array handed to NumPy",
    "tolist": "list read by tolist()",
    "__repr__": "printed tensor",
    "__format__": "printed tensor",
}
ARRAY_SAVERS = ("save", "savez", "savez_compressed", "savetxt")
SAFETENSORS = "safetensors.torch"
MAX_LINE = 10_000  # characters of a printed line that are looked at


def install(events: Events, patches: Patches) -> None:
    reading = _Reading(events)
    patches.wrap(torch.Tensor, "__float__", _warn_at_the_caller)
    for name in ("item", "__float__", "tolist", "numpy", "__array__"):
        patches.wrap(torch.Tensor, name, reading.wrap_reader)
    for name in ("__repr__", "__format__"):
        patches.wrap(torch.Tensor, name, reading.wrap_text)
    patches.wrap(torch.nn.Parameter, "__repr__", reading.wrap_text)
    patches.wrap(torch, "save", reading.wrap_save)
    patches.wrap(torch, "load", reading.wrap_load)
    if not is_being_imported(SAFETENSORS):
        know_safetensors(events, patches)
    numpy = sys.modules.get("numpy")
    for name in ARRAY_SAVERS if numpy is not None else ():
        patches.wrap(numpy, name, reading.wrap_array_save)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "__dict__"):
            patches.wrap(stream, "write", _Lines(events).wrap)


def know_safetensors(events: Events, patches: Patches) -> None:
    """Both of its ways to save come through here, also where a program imported them by name."""
    try:
        module = importlib.import_module(SAFETENSORS)
    except ImportError:
        return
    reading = _Reading(events)
    for name in ("_flatten", "_flatten_as_ptr"):
        if hasattr(module, name):
            patches.wrap(module, name, reading.wrap_save)
    patches.wrap(module, "load_file", reading.wrap_load)


def is_being_imported(name: str) -> bool:
    """It may be what imports torch: then it has nothing to offer yet."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return bool(getattr(spec, "_initializing", False))


class _Reading:
    def __init__(self, events: Events) -> None:
        self._events = events
        self._quiet = events.quiet

    def wrap_reader(self, original: Callable[..., Any]) -> Callable[..., Any]:
        how, quiet, local = READERS[original.__name__], self._quiet, self._quiet.local

        def read(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            value = original(tensor, *args, **kwargs)
            if (
                not local.own
                and not local.depth
                and quiet.is_the_programs
                and type(value) is not int
            ):
                self._tell(tensor, value, how, sys._getframe(1))
            return value

        return read

    def wrap_text(self, original: Callable[..., Any]) -> Callable[..., Any]:
        how, local = READERS[original.__name__], self._quiet.local

        def show(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            is_the_programs = self._quiet.is_the_programs
            local.own += 1  # formatting is torch's work, not the program's
            try:
                text = original(tensor, *args, **kwargs)
            finally:
                local.own -= 1
            if is_the_programs:
                self._tell(tensor, text, how, sys._getframe(1))
            return text

        return show

    def _tell(self, tensor: Any, value: Any, how: str, frame: FrameType) -> None:
        frame = beyond_own(frame)
        if not is_torch_file(frame.f_code.co_filename):  # else torch reads for its own purposes
            self._events.tell("value_read", tensor, value, how, frame)

    def wrap_array_save(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def save(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            if self._quiet.is_the_programs:
                bad = any(self._quiet(_is_bad_array, v) for v in (*args, *kwargs.values()))
                self._events.tell("array_saved", bad, sys._getframe(1))
            return result

        return save

    def wrap_load(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def load(*args: Any, **kwargs: Any) -> Any:
            obj = original(*args, **kwargs)
            file = args[0] if args else kwargs.get("f", kwargs.get("filename"))
            if isinstance(file, (str, os.PathLike)) and self._quiet.is_the_programs:
                self._events.tell("file_loaded", str(file), obj)
            return obj

        return load

    def wrap_save(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def save(obj: Any, *args: Any, **kwargs: Any) -> Any:
            if self._quiet.is_the_programs:
                self._events.tell("saved", obj, sys._getframe(1))
            return original(obj, *args, **kwargs)

        return save


def _is_bad_array(value: Any) -> bool:
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    return kind in "fc" and kind != "" and bool((value != value).any())


class _Lines:
    """What is written to a stream, by lines: `print` writes each of its arguments on its own."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._line = ""
        self._of: tuple[Any, int] | None = None

    def wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        quiet = self._events.quiet

        def write(text: Any) -> Any:
            if quiet.local.is_repeating:
                return len(text)  # it was written before
            result = original(text)
            if quiet.active and not quiet.local.own and type(text) is str:
                self._note(text, sys._getframe(1))
            return result

        return write

    def _note(self, text: str, frame: FrameType) -> None:
        place = (frame.f_code, frame.f_lasti)
        if place != self._of:
            self._of, self._line = place, ""
        if len(self._line) < MAX_LINE:
            self._line += text[:MAX_LINE]
        ends = text.endswith("\n")
        if ends or "n" in text:  # of nan and inf
            self._events.tell("text_shown", self._line, frame)
        if ends:
            self._line = ""


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

"""From the running stack to the user's own line, down to the column."""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import NamedTuple

import torch

from whynan.model import Site
from whynan.source.positions import site_at

OWN, LIBRARY, THIRD_PARTY, USER = -1, 0, 1, 2

_torch_as_imported = os.path.dirname(torch.__file__) + os.sep
_torch_root = os.path.dirname(os.path.realpath(torch.__file__)) + os.sep
_own_root = os.path.dirname(os.path.dirname(os.path.realpath(__file__))) + os.sep
_stable = os.path.join(_own_root, "stable") + os.sep
_launcher = os.path.join(os.path.dirname(os.path.dirname(__file__)), "run", "program.py")
_stdlib_roots = tuple(
    os.path.realpath(path) + os.sep
    for name in ("stdlib", "platstdlib")
    if (path := sysconfig.get_paths().get(name))
)
_kinds: dict[str, int] = {}


class Frames(NamedTuple):
    """Where an operation was called: the innermost frame that is not library code,
    the user's own frame when that is another, and the innermost library function."""

    code: CodeType
    lasti: int
    user_code: CodeType | None
    user_lasti: int
    inside: CodeType | None


def kind_of_file(filename: str) -> int:
    """Library (torch, Python, whynan), third party, or the user's own."""
    kind = _kinds.get(filename)
    if kind is None:
        kind = _kinds[filename] = _classify(filename)
    return kind


def _classify(filename: str) -> int:
    if filename.startswith("<"):
        return USER if filename.startswith(("<ipython", "<stdin", "<doctest")) else LIBRARY
    path = os.path.realpath(filename)
    if path.startswith(_own_root):
        return OWN
    if path.startswith(_torch_root) or f"{os.sep}site-packages{os.sep}safetensors{os.sep}" in path:
        return LIBRARY  # what is loaded by either is loaded by its caller
    if f"{os.sep}site-packages{os.sep}" in path or f"{os.sep}dist-packages{os.sep}" in path:
        return THIRD_PARTY
    return LIBRARY if path.startswith(_stdlib_roots) else USER


def program_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Those of the user's own files, from the inside; not of what started whynan, which started the program."""
    while frame is not None and frame.f_code.co_filename != _launcher:
        if kind_of_file(frame.f_code.co_filename) == USER:
            yield frame
        frame = frame.f_back


def is_torch_file(filename: str) -> bool:
    """Whether torch itself is calling, for its own purposes."""
    return filename.startswith(_torch_as_imported)


def is_own_file(filename: str) -> bool:
    """Whether whynan itself is at work; `whynan.stable` is the program's."""
    return kind_of_file(filename) == OWN and not os.path.realpath(filename).startswith(_stable)


def beyond_own(frame: FrameType) -> FrameType:
    """The nearest frame that is not whynan's."""
    while frame.f_back is not None and kind_of_file(frame.f_code.co_filename) == OWN:
        frame = frame.f_back
    return frame


def beyond_torch(frame: FrameType) -> FrameType:
    """The nearest frame that is neither torch's nor whynan's."""
    while frame.f_back is not None and (
        is_torch_file(frame.f_code.co_filename) or kind_of_file(frame.f_code.co_filename) == OWN
    ):
        frame = frame.f_back
    return frame


def capture(frame: FrameType | None, stop: CodeType | None = None) -> Frames | None:
    """The call site seen from `frame`; None when `stop` runs below any non-library frame."""
    inside = None
    while frame is not None:
        code = frame.f_code
        kind = _kinds.get(code.co_filename)
        if kind is None:
            kind = kind_of_file(code.co_filename)
        if kind == THIRD_PARTY and code.co_name == "__torch_function__":
            kind = LIBRARY  # a subclass that hands on what was called
        if kind > LIBRARY:
            if kind == USER:
                return Frames(code, frame.f_lasti, None, 0, inside)
            outer: FrameType | None = frame.f_back
            while outer is not None and kind_of_file(outer.f_code.co_filename) != USER:
                outer = outer.f_back
            outer = _waits_for(code) if outer is None else outer
            if outer is None:
                return Frames(code, frame.f_lasti, None, 0, inside)
            return Frames(code, frame.f_lasti, outer.f_code, outer.f_lasti, inside)
        if code is stop:
            return None
        if kind == LIBRARY and code.co_name != "__torch_function__":
            inside = code
        frame = frame.f_back
    return None


def _waits_for(code: CodeType) -> FrameType | None:
    """Of a thread that a library has started: the program's own frame that the same library is at
    work for in the main thread."""
    if threading.get_ident() == threading.main_thread().ident:
        return None
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    is_it = False
    while frame is not None:
        filename = frame.f_code.co_filename
        if kind_of_file(filename) == USER:
            return frame if is_it else None
        is_it = is_it or filename == code.co_filename
        frame = frame.f_back
    return None


def passes_through(frame: FrameType | None, file_end: str, stop: CodeType) -> bool:
    """Whether a frame of that file stands between here and `stop`."""
    while frame is not None and frame.f_code is not stop:
        if frame.f_code.co_filename.endswith(file_end):
            return True
        frame = frame.f_back
    return False


def site_of(frames: Frames) -> Site:
    """Resolve a captured call site to file, line and columns."""
    site = site_at(frames.code, frames.lasti)
    if frames.user_code is None:
        return site
    from dataclasses import replace

    return replace(site, caller=site_at(frames.user_code, frames.user_lasti))


def own_places() -> tuple[list[str], list[str]]:
    """Those files, and the folders in which their settings may be."""
    files = [*own_files()]
    return files, list(dict.fromkeys([os.getcwd(), *(os.path.dirname(f) for f in files)]))


def own_files() -> Iterator[str]:
    """Those that the program is made of, as far as they were imported."""
    seen = set()
    for module in [*sys.modules.values()]:
        file = getattr(module, "__dict__", {}).get("__file__")
        if isinstance(file, str) and file not in seen and file.endswith(".py"):
            seen.add(file)
            if kind_of_file(file) == USER:
                yield file

"""From the running stack to the user's own line, without torch."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

from whynan.model import Site
from whynan.source.positions import site_at

_own = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_own_resolved = os.path.realpath(_own) + os.sep
_stdlib = os.path.realpath(sysconfig.get_paths()["stdlib"]) + os.sep


_Function = TypeVar("_Function", bound=Callable[..., object])


def unseen_by_warnings(function: _Function) -> _Function:
    """One that stands between the program and a library, whose warnings are to name the program's line.

    Python passes over frames of its own import system, which it knows by these two words.
    """
    code = function.__code__
    name = f"{code.co_filename} importlib _bootstrap"
    function.__code__ = code.replace(co_filename=name)
    return function


def is_library(filename: str) -> bool:
    """Whether a file belongs to Python, an installed package or whynan."""
    if filename.startswith("<"):
        return not filename.startswith(("<ipython", "<stdin", "<doctest"))
    path = os.path.realpath(filename)
    installed = any(f"{os.sep}{name}-packages{os.sep}" in path for name in ("site", "dist"))
    return installed or path.startswith((_own_resolved, _stdlib))


def is_own(filename: str) -> bool:
    """Whether a file is one of whynan's."""
    return filename.startswith(_own)


def programs_own(frame: FrameType | None) -> FrameType | None:
    """The innermost frame that belongs to no library."""
    while frame is not None and is_library(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def site_of(frame: FrameType | None) -> Site | None:
    """The innermost line that belongs to no library."""
    own = programs_own(frame)
    return site_at(own.f_code, own.f_lasti) if own is not None else None

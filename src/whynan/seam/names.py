"""A row for each name of torch that whynan relies on and torch does not promise to keep."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from whynan.errors import UsageError

NOTHING = "Nothing is lost."
COMPILER = ("torch._dynamo", "torch._inductor", "torch._functorch")
ABSENT = object()
_SET_LATER = object()  # an attribute that objects of the class have, and the class itself has not


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """One name: since which torch it exists, and what happens without it."""

    path: str  # dotted, from `torch` on
    since: str  # the first release that has it; 1.13 means that one or before
    until: str = ""  # the last release that needs it, where a newer one does without
    instead: str = ""  # what is used without it; nothing: whynan refuses
    lost: str  # one sentence: what is lost where it is missing

    @property
    def is_needed(self) -> bool:
        return not self.instead

    def is_present(self) -> bool:
        """Whether this torch has it."""
        return find(self.path) is not ABSENT

    @property
    def is_unasked(self) -> bool:
        """In a part of torch that nobody has imported: the compiler takes seconds."""
        part = ".".join(self.path.split(".")[:2])
        return part in COMPILER and part not in sys.modules


NAMES: dict[str, Name] = {}  # by path; filled by `private` as it is imported, and never after


def needed(path: str, *, since: str, lost: str) -> Any:
    """What torch has under that name; whynan refuses to work where it is missing."""
    name = NAMES[path] = Name(path=path, since=since, lost=lost)
    found = find(path)
    return _absent(name) if found is ABSENT else found


def optional(path: str, fallback: Any, *, since: str, instead: str, lost: str) -> Any:
    """What torch has under that name, else the fallback, which `instead` describes."""
    NAMES[path] = Name(path=path, since=since, instead=instead, lost=lost)
    found = find(path)
    return fallback if found is ABSENT else found


def read(path: str, *, since: str, lost: str, instead: str = "", until: str = "") -> str:
    """An attribute that whynan reads from objects; returns what it is called."""
    NAMES[path] = Name(path=path, since=since, until=until, instead=instead, lost=lost)
    return path.rpartition(".")[2]


def find(path: str) -> Any:
    """The object under a dotted name, or ABSENT."""
    found: Any = torch
    for part in path.split(".")[1:]:
        owner, found = found, getattr(found, part, ABSENT)
        if found is ABSENT and isinstance(owner, ModuleType):
            found = _submodule(owner, part)
        if found is ABSENT:
            return _SET_LATER if isinstance(owner, type) and _sets(owner, part) else ABSENT
    return found


def _submodule(owner: ModuleType, part: str) -> Any:
    """Parts of torch that are imported by whoever uses them, as `torch.distributed.tensor`."""
    if not hasattr(owner, "__path__"):
        return ABSENT
    try:
        return importlib.import_module(f"{owner.__name__}.{part}")
    except ImportError:
        return ABSENT


def _sets(owner: type, attribute: str) -> bool:
    """Whether objects of the class have it: it is declared, or the class's own code names it."""
    for kind in owner.__mro__:
        functions = [inspect.unwrap(f) for f in vars(kind).values() if inspect.isfunction(f)]
        if attribute in getattr(kind, "__annotations__", ()) or any(
            attribute in f.__code__.co_names for f in functions
        ):
            return True
    return False


def _absent(name: Name) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise UsageError(f"torch {torch.__version__} has no `{name.path}`. {name.lost}")

    return refuse

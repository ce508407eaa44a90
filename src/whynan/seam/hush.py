"""No warnings from whynan's own work, and no random number, without touching what is the program's.

`warnings.catch_warnings` tells Python that the filters have changed, whereupon every warning that
was shown once is shown again. A filter put in front of the others and taken away says nothing.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def hushed(category: type[Warning] = Warning) -> Iterator[None]:
    """Ignore warnings of this category."""
    with _filtered("ignore", category):
        yield


@contextmanager
def collected() -> Iterator[list[warnings.WarningMessage]]:
    """Warnings go into a list instead of being shown."""
    module: Any = warnings
    found: list[warnings.WarningMessage] = []
    shown = module._showwarnmsg
    module._showwarnmsg = found.append
    try:
        with _filtered("always", Warning):
            yield found
    finally:
        module._showwarnmsg = shown


@contextmanager
def same_random() -> Iterator[None]:
    """Python's random numbers go on as if nothing had drawn any: `rich` does, when imported."""
    state = random.getstate()
    try:
        yield
    finally:
        random.setstate(state)


@contextmanager
def _filtered(action: str, category: type[Warning]) -> Iterator[None]:
    filters: Any = warnings.filters  # the list itself: the program may replace it meanwhile
    first = (action, None, category, None, 0)
    filters.insert(0, first)
    try:
        yield
    finally:
        filters.remove(first)

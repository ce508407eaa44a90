"""Replaces attributes for the length of a block and puts every one back."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

Wrapper = Callable[..., Any]


class Patches:
    """A stack of replaced attributes."""

    def __init__(self) -> None:
        self._saved: list[tuple[Any, str, Any, Any]] = []
        self._at_the_end: list[Callable[[], None]] = []

    def on_restore(self, work: Callable[[], None]) -> None:
        """Something else that is to be put back."""
        self._at_the_end.append(work)

    def wrap(self, owner: Any, name: str, wrapper: Callable[[Callable[..., Any]], Wrapper]) -> None:
        """Replace `owner.name` by `wrapper(original)`."""
        inherited = name not in vars(owner)
        original = getattr(owner, name)
        replacement = functools.wraps(original)(wrapper(original))
        self._saved.append((owner, name, None if inherited else original, replacement))
        setattr(owner, name, replacement)

    def after(self, owner: Any, name: str, tell: Callable[[Any], Any]) -> None:
        """Tell of the object whose method was called, when that is done."""

        def wrapper(original: Callable[..., Any]) -> Wrapper:
            def call(itself: Any, *args: Any, **kwargs: Any) -> Any:
                result = original(itself, *args, **kwargs)
                tell(itself)
                return result

            return call

        self.wrap(owner, name, wrapper)

    def restore(self) -> None:
        """Put everything back, unless somebody replaced it again meanwhile."""
        while self._at_the_end:
            self._at_the_end.pop()()
        while self._saved:
            owner, name, original, replacement = self._saved.pop()
            if vars(owner).get(name) is not replacement:
                continue
            if original is None:
                delattr(owner, name)
            else:
                setattr(owner, name, original)

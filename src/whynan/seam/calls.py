"""Which nn.Module is running, while the program is recorded."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import nn

from whynan.seam.patches import Patches

_is_compiling = torch.compiler.is_compiling
Weak = weakref.ref[nn.Module]


class Outermost(Protocol):
    """Who wants to know of modules that no other module calls."""

    def outermost_begins(self, module: nn.Module, args: Any) -> None: ...
    def outermost_ends(self, module: nn.Module, output: Any) -> None: ...


class Calls:
    """Follows module calls; `stack()` is the calling thread's. Torch's global hooks would do, at
    twenty times the cost."""

    def __init__(self, listener: Outermost) -> None:
        self._local = threading.local()
        self._listener = listener
        self.special: dict[type[nn.Module], Callable[..., Any]] = {}  # how to call these kinds

    def install(self, patches: Patches) -> None:
        patches.wrap(nn.Module, "__call__", self._wrap_call)

    def stack(self) -> list[Weak]:
        try:
            return self._local.stack  # type: ignore[no-any-return]  # threading.local
        except AttributeError:
            stack: list[Weak] = []
            self._local.stack = stack
            return stack

    def running(self) -> tuple[Weak, Weak] | None:
        """(outermost module, innermost module) of this thread; a record must not keep them alive."""
        stack = self.stack()
        return (stack[0], stack[-1]) if stack else None

    def _wrap_call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            # A compiler, which would follow the code below, takes this for certain.
            if _is_compiling() or isinstance(module, torch.jit.ScriptModule):
                return original(module, *args, **kwargs)
            stack = self.stack()
            if not stack:
                self._listener.outermost_begins(module, (*args, *kwargs.values()))
            stack.append(weakref.ref(module))
            special = self.special.get(type(module))
            try:
                if special is None:
                    output = original(module, *args, **kwargs)
                else:
                    output = special(original, module, args, kwargs)
            finally:
                stack.pop()
            if not stack:
                self._listener.outermost_ends(module, output)
            return output

        return call

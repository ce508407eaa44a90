"""Which nn.Module is running, and what its parameters are called."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)

from whynan.record.storages import storage_id


class ModuleTracker:
    """Follows module calls with global hooks; `stack()` is the calling thread's."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._roots: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._start: Callable[[nn.Module, Any], None] = lambda module, args: None
        self._end: Callable[[nn.Module, Any], None] = lambda module, output: None
        self._handles: list[Any] = []

    def install(
        self,
        on_outermost_start: Callable[[nn.Module, Any], None],
        on_outermost_end: Callable[[nn.Module, Any], None],
    ) -> None:
        self._start, self._end = on_outermost_start, on_outermost_end
        self._handles = [
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, always_call=True),
        ]

    def know(self, root: nn.Module) -> None:
        """A model whose parameters are to be called by name before it ran."""
        self._roots.add(root)

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def stack(self) -> list[nn.Module]:
        try:
            return self._local.stack  # type: ignore[no-any-return]  # threading.local
        except AttributeError:
            stack: list[nn.Module] = []
            self._local.stack = stack
            return stack

    def _enter(self, module: nn.Module, args: Any) -> None:
        if isinstance(module, torch.jit.ScriptModule):
            return
        stack = self.stack()
        if not stack:
            self._roots.add(module)
            self._start(module, args)
        stack.append(module)

    def _leave(self, module: nn.Module, _args: Any, output: Any) -> None:
        stack = self.stack()
        if not stack or module not in stack:
            return
        while stack.pop() is not module:  # a child that raised was never left
            pass
        if not stack:
            self._end(module, output)

    def running(self) -> tuple[nn.Module, nn.Module] | None:
        """(outermost module, innermost module) of this thread."""
        stack = self.stack()
        return (stack[0], stack[-1]) if stack else None

    def roots(self) -> Iterator[nn.Module]:
        yield from list(self._roots)

    def parameter_name(self, tensor: torch.Tensor) -> str | None:
        """The dotted name of a parameter or buffer of any module that ran."""
        for root in self.roots():
            for name, candidate in _named_tensors(root):
                if candidate is tensor:
                    return name
        return None

    def name_of_storage(self, cdata: int) -> tuple[str, str] | None:
        """("parameter" or "buffer", dotted name) of the tensor that owns this storage."""
        for root in self.roots():
            for kind, items in (
                ("parameter", root.named_parameters()),
                ("buffer", root.named_buffers()),
            ):
                for name, tensor in items:
                    if torch._C._has_storage(tensor) and storage_id(tensor) == cdata:
                        return kind, clean(name)
        return None


def _named_tensors(root: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    for name, tensor in (*root.named_parameters(), *root.named_buffers()):
        yield clean(name), tensor


def clean(name: str) -> str:
    """A dotted name without the wrapper that torch.compile puts around a model."""
    return name.replace("_orig_mod.", "")


def path_of(running: tuple[nn.Module, nn.Module] | None) -> str | None:
    """Dotted path of the running module below the outermost one, whose class stands for itself."""
    if running is None:
        return None
    root, module = running
    if root is module:
        return type(root).__name__
    for name, candidate in root.named_modules():
        if candidate is module:
            return clean(name)
    return type(module).__name__

"""The outermost module's output while no gradient is asked for; costs nothing otherwise."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules import module as nn_module

from whynan.record.patches import Patches

_CALL = torch.nn.Module._call_impl.__code__


class _Local(threading.local):
    def __init__(self) -> None:
        self.blocks = 0  # nested no_grad and inference_mode blocks
        self.depth = 0  # nested module calls


class Inference:
    """Global module hooks that are there only inside `no_grad` and `inference_mode`: every
    module call would pay for them in training, where the loss tells all."""

    def __init__(
        self,
        called: Callable[[Any], None],
        returned: Callable[[Any, Any], None],
        left: Callable[[], None],
    ) -> None:
        self._called = called
        self._returned = returned
        self._left = left
        self._local = _Local()
        self._key = id(self)
        self._wanted = True

    def install(self, patches: Patches) -> None:
        for block in (torch.no_grad, torch.inference_mode):
            patches.wrap(block, "__enter__", self._wrap_enter)
            patches.wrap(block, "__exit__", self._wrap_exit)

    def give_up(self) -> None:
        """For good: a compiler would warn of the hooks and take them into its graphs."""
        self._wanted = False
        self.remove()

    def remove(self) -> None:
        nn_module._global_forward_pre_hooks.pop(self._key, None)
        nn_module._global_forward_hooks.pop(self._key, None)

    def _wrap_enter(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def enter(block: Any) -> Any:
            local = self._local
            if local.blocks == 0 and self._wanted:
                local.depth = 0
                nn_module._global_forward_pre_hooks[self._key] = self._enter
                nn_module._global_forward_hooks[self._key] = self._leave
            local.blocks += 1
            return original(block)

        return enter

    def _wrap_exit(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def leave(block: Any, *error: Any) -> Any:
            local = self._local
            local.blocks = max(0, local.blocks - 1)
            if local.blocks == 0:
                self.remove()
            result = original(block, *error)
            if local.blocks == 0:
                self._left()
            return result

        return leave

    def _enter(self, module: Any, args: Any) -> None:
        self._local.depth += 1

    def _leave(self, module: Any, args: Any, output: Any) -> None:
        local = self._local
        local.depth = max(0, local.depth - 1)
        if local.depth == 0 and local.blocks:
            self._called(module)
            self._returned(module, output)


def is_part_of_another() -> bool:
    """Whether the module that is running was called by another one: it is not the outermost, though
    the block without gradients may have begun inside that other one."""
    frame, calls = sys._getframe(1).f_back, 0
    while frame is not None:
        calls += frame.f_code is _CALL
        frame = frame.f_back
    return calls > 1

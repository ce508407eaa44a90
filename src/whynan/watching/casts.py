"""A model cast to half precision, and what does not fit into it.

Weights or statistics become infinite, and an infinite variance gives outputs that are finite and wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from whynan.record.patches import Patches
from whynan.record.stats import has_nonfinite, local_of

NARROW = (torch.float16, torch.float8_e4m3fn, torch.float8_e5m2)


class Casts:
    """Compares what is infinite in a model before and after it is made narrower; a rare call."""

    def __init__(
        self,
        looks: Callable[[], bool],
        quietly: Callable[..., Any],
        overflowed: Callable[[str], None],
    ) -> None:
        self._looks = looks
        self._quietly = quietly
        self._overflowed = overflowed

    def install(self, patches: Patches) -> None:
        patches.wrap(
            nn.Module, "half", lambda original: self._wrap(original, lambda *_, **__: True)
        )
        patches.wrap(nn.Module, "to", lambda original: self._wrap(original, _is_narrow))

    def _wrap(
        self, original: Callable[..., Any], is_narrow: Callable[..., bool]
    ) -> Callable[..., Any]:
        def cast(module: Any, *args: Any, **kwargs: Any) -> Any:
            looks = self._looks() and self._quietly(is_narrow, *args, **kwargs)
            before = self._quietly(_infinite, module) if looks else None
            result = original(module, *args, **kwargs)
            if before is not None:
                self._quietly(self._compare, module, before)
            return result

        return cast

    def _compare(self, module: nn.Module, before: set[str]) -> None:
        for name in sorted(_infinite(module) - before)[:1]:
            self._overflowed(name)


def _is_narrow(*args: Any, **kwargs: Any) -> bool:
    return any(
        dtype in NARROW for dtype in (*args, *kwargs.values()) if isinstance(dtype, torch.dtype)
    )


def _infinite(module: nn.Module) -> set[str]:
    named = (*module.named_parameters(), *module.named_buffers())
    return {
        name
        for name, tensor in named
        if tensor.is_floating_point()
        and tensor.layout is torch.strided
        and has_nonfinite(local_of(tensor).detach())
    }

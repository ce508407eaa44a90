"""Can this tensor be read, here and now, without anybody noticing?"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from whynan.seam.private import (
    LOCAL_PART,
    function_modes,
    function_modes_off,
    has_storage,
    is_functional,
    is_wrapped,
    is_zero_tensor,
    no_dispatch,
    subclass_functions_off,
)

PLAIN = (torch.Tensor.__torch_dispatch__, no_dispatch)
_ORDINARY = (torch.Tensor, torch.nn.Parameter)
_AS_IT_IS = nullcontext()


def local_of(x: torch.Tensor) -> torch.Tensor:
    """This process's part of a distributed tensor (DTensor): asking the whole one would make
    all ranks talk. Any other tensor is itself."""
    if type(x) in _ORDINARY:
        return x
    part = getattr(x, LOCAL_PART, None)
    return part if isinstance(part, torch.Tensor) else x


def plain_of(x: torch.Tensor) -> torch.Tensor:
    """The same values as a tensor of torch's own: a subclass of a library is not asked."""
    if type(x) in _ORDINARY:
        return x
    with subclass_functions_off():
        return x.as_subclass(torch.Tensor)


def readable(x: torch.Tensor) -> torch.Tensor | None:
    """What this process can read of a tensor, detached; None where there is nothing to be read."""
    x = local_of(x)
    return x.detach() if can_be_read(x) else None


def can_be_read(x: torch.Tensor) -> bool:
    """Of a tensor that is no distributed one.

    There is nothing behind a tensor on the meta device, a fake one, one that `torch.func` or
    `functionalize` hands to a function, or a parameter that waits for its shape. The memory of an
    unsharded parameter is given back while the parameter lives on: reading it would end the
    process. Any other subclass decides for itself what an operation on it means.
    """
    if type(x) not in _ORDINARY and (type(x).__torch_dispatch__ not in PLAIN or is_lazy(x)):
        return False
    if x.is_meta or x.is_nested or is_wrapped(x) or is_functional(x):
        return False
    return is_in_memory(x)


def all_hollow(tensors: Iterable[Any]) -> bool:
    """Whether there are tensors and nothing is behind any of them, on the meta device or fake:
    a dry run, which is not the program's training."""
    with function_modes_off() if function_modes() else _AS_IT_IS:  # they are not to hear it
        found = False
        for tensor in tensors:
            if not (tensor.is_meta if type(tensor) in _ORDINARY else _is_hollow(tensor)):
                return False
            found = True
        return found


def _is_hollow(x: Any) -> bool:
    if not isinstance(x, torch.Tensor):
        return False
    x = local_of(x)
    if type(x) in _ORDINARY or is_lazy(x):
        return bool(x.is_meta)
    # A fake tensor says that it is on the device it stands for; its storage knows better.
    with subclass_functions_off():  # a subclass of the program's is not to hear it
        return has_storage(x) and bool(x.untyped_storage().device.type == "meta")


def is_in_memory(x: torch.Tensor) -> bool:
    """The memory of a parameter that is put together for a moment (FSDP) is given back while the
    tensor lives on: reading it would end the process."""
    if not has_storage(x) or x.untyped_storage().nbytes():
        return True
    return x.numel() == 0 or is_zero_tensor(x)

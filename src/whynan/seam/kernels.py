"""Other implementations that torch has of an operation, besides the kernel it has chosen.

Rows of private names for `private`, which imports this table, and the few things that are done with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from whynan.seam.names import optional, read

_OTHERS = "A kernel's result cannot be compared with that of torch's own decomposition."
decompositions: Mapping[Any, Callable[..., Any]] = optional(
    "torch._decomp.decomposition_table",
    {},
    since="1.13",
    instead="the other ways of computing the operation",
    lost=_OTHERS,
)
math_attention: Callable[..., Any] | None = optional(
    "torch.ops.aten._scaled_dot_product_attention_math",
    None,
    since="2.0",
    instead="the decomposition, where there is one",
    lost="An attention kernel cannot be compared with plain mathematics.",
)
_explicit: Any = optional(
    "torch._C.DispatchKey.CompositeExplicitAutograd",
    None,
    since="1.13",
    instead="the other ways of computing the operation",
    lost=_OTHERS,
)
_implicit: Any = optional(
    "torch._C.DispatchKey.CompositeImplicitAutograd",
    None,
    since="1.13",
    instead="the other ways of computing the operation",
    lost=_OTHERS,
)
_has_kernel: Callable[[str, str], bool] = optional(
    "torch._C._dispatch_has_kernel_for_dispatch_key",
    lambda name, key: False,
    since="1.13",
    instead="the other ways of computing the operation",
    lost=_OTHERS,
)
read(
    "torch.ops.aten.add.Tensor._op_dk",
    since="1.13",
    lost="Operations in inference mode cannot be taken apart.",
)


def composite_of(operator: Any) -> Callable[..., Any] | None:
    """The kernel for every device, where a device has one of its own that is used instead."""
    name = operator.name()
    keys = {"CompositeExplicitAutograd": _explicit, "CompositeImplicitAutograd": _implicit}
    for text, key in keys.items():
        if key is not None and _has_kernel(name, text):
            return lambda *args, **kwargs: operator._op_dk(key, *args, **kwargs)
    return None


def defaults_of(operator: Any) -> dict[str, Any]:
    """What an operator's arguments are when they are not given."""
    arguments = operator._schema.arguments
    return {a.name: a.default_value for a in arguments if a.has_default_value()}


def capability() -> str:
    """The processor's vector instructions that torch's kernels were chosen for."""
    asked = getattr(torch.backends.cpu, "get_cpu_capability", None)
    return str(asked()) if asked is not None else ""

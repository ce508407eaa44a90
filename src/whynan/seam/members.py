"""What torch's objects carry under private names: nodes, operators, modules and loaders."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch.autograd import forward_ad

from whynan.seam.private import (
    CHILDREN,
    COMPOSITE,
    OWN_HOOKS,
    Overload,
    Packet,
    transforms_active,
)

# ---- autograd ---------------------------------------------------------------------------


def sequence_of(node: Any) -> int:
    """The number under which an autograd node was made."""
    return node._sequence_nr()  # type: ignore[no-any-return]  # of torch


def has_transforms() -> bool:
    """Whether something other than ordinary autograd looks at the operations."""
    return transforms_active() or getattr(forward_ad, "_current_level", 0) >= 0


# ---- operators --------------------------------------------------------------------------


def kernel_of(operator: Any) -> Any:
    """What an overload's own `__call__` does, without the frame in between."""
    return operator._op if type(operator) is Overload else operator


def run_in_parts(operator: Any, args: Any, kwargs: Any) -> Any:
    """Run an operation as those that it is made of."""
    return operator._op_dk(COMPOSITE, *args, **kwargs)


def schema_of(operator: Any) -> Any:
    """What it reads, writes and returns; None of one that takes functions, as `torch.cond`."""
    return getattr(operator, "_schema", None)


def names_of(operator: Any) -> tuple[str, str]:
    """The name of an operation and of its overload: ("add_", "Tensor")."""
    return operator._opname, operator._overloadname


def schemas_of(name: str) -> list[Any]:
    """Those of all overloads of torch's operator of that name; none: there is no such one."""
    packet = getattr(torch.ops.aten, name, None) if name.isidentifier() else None
    if not isinstance(packet, Packet):
        return []
    overloads = packet.overloads()  # type: ignore[no-untyped-call]  # torch
    return [schema_of(getattr(packet, overload)) for overload in overloads]


# ---- modules ----------------------------------------------------------------------------


def has_own_hooks(module: torch.nn.Module) -> bool:
    """Whether something of the program's runs when this module does."""
    return any(getattr(module, name, True) for name in OWN_HOOKS)


def hook_alone(module: Any, key: int, before: Any, after: Any) -> None:
    """Let `after` hear when this module returns or raises, and both when it is called again meanwhile."""
    module._forward_pre_hooks[key] = before
    module._forward_hooks[key] = after
    module._forward_hooks_always_called[key] = True


def unhook(module: Any, key: int) -> None:
    module._forward_pre_hooks.pop(key, None)
    module._forward_hooks.pop(key, None)
    module._forward_hooks_always_called.pop(key, None)


def is_compiled(module: torch.nn.Module) -> bool:
    """Whether `module.compile()` was called."""
    return module._compiled_call_impl is not None


def is_made(module: torch.nn.Module) -> bool:
    """Whether `Module.__init__` has been through it: else it cannot be asked for its parts."""
    return hasattr(module, CHILDREN)


def weights_of(lstm: torch.nn.LSTM) -> list[Any]:
    """In the order in which the kernel takes them."""
    return lstm._flat_weights


# ---- the iterator of a DataLoader -------------------------------------------------------


def is_at_start(iterator: Any) -> bool:
    """Whether it has neither handed out nor asked for anything."""
    return not getattr(iterator, "_num_yielded", 1) and not getattr(iterator, "_send_idx", 0)


def asks_workers(iterator: Any) -> bool:
    """Whether workers are asked for batches before the program is."""
    return hasattr(iterator, "_send_idx")


def is_in_order(iterator: Any) -> bool:
    """Whether batches are handed out in the order in which they were asked for."""
    return bool(getattr(iterator, "_in_order", True))


def workers_of(iterator: Any) -> int:
    """How many processes make its batches; 0: this one does."""
    return int(getattr(iterator, "_num_workers", 0))


def can_fetch_again(iterator: Any) -> bool:
    """Whether this process asks the dataset, by index."""
    return (
        getattr(iterator, "_dataset_fetcher", None) is not None
        and not isinstance(iterator._dataset, torch.utils.data.IterableDataset)
        and not getattr(iterator, "_pin_memory", False)
    )


def is_a_stream(iterator: Any) -> bool:
    """Whether its dataset is not asked by index, and this process goes through it in order."""
    stream = isinstance(getattr(iterator, "_dataset", None), torch.utils.data.IterableDataset)
    return stream and not workers_of(iterator)


def next_worker(iterator: Any) -> int | None:
    """Of a stream that several processes go through, each by itself: which one is asked next; None once
    one of them has come to its end."""
    stream = isinstance(getattr(iterator, "_dataset", None), torch.utils.data.IterableDataset)
    if not stream or not workers_of(iterator) or not all(getattr(iterator, "_workers_status", ())):
        return None
    return int(iterator._send_idx % workers_of(iterator))


def fetch_again(iterator: Any, index: Any) -> Any:
    """What the dataset gives when it is asked once more."""
    return iterator._dataset_fetcher.fetch(index)


def dataset_of(iterator: Any) -> Any:
    """What `item_of` asks of a loader's iterator, without its workers."""
    return SimpleNamespace(_collate_fn=iterator._collate_fn, _dataset=iterator._dataset)


def behind(iterator: Any) -> Any:
    """The dataset itself; None where there is none."""
    return getattr(iterator, "_dataset", None)


def item_of(iterator: Any, index: Any) -> Any:
    """One item of the dataset, as a batch of its own."""
    return iterator._collate_fn([iterator._dataset[index]])

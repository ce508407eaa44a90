"""First sight of a storage that nothing recorded made, and of a leaf."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from whynan.record.local import Local
from whynan.record.saving import INEXACT
from whynan.record.storages import Entry
from whynan.seam.private import current_node
from whynan.seam.reading import can_be_read, is_in_memory
from whynan.seam.stats import has_nonfinite

if TYPE_CHECKING:
    from whynan.record.tracer import Tracer


def meet(tracer: Tracer, tensor: torch.Tensor) -> Entry:
    """Know a tensor's storage from now on."""
    storage = tensor.untyped_storage()
    entry = Entry(storage)
    entry.watch(storage)
    tracer.entries[entry.cdata] = entry
    if tensor.dtype in INEXACT and can_be_read(tensor):
        size = tensor.numel() * tensor.element_size()
        whole = entry.nbytes == size
        entry.partial = not whole
        if whole and current_node() is not None:
            entry.unseen = True
        else:
            look_into(tracer, entry, tensor)
    return entry


def look_into(tracer: Tracer, entry: Entry, tensor: torch.Tensor) -> None:
    """Whether it is non-finite, which nothing recorded can tell; of one on a device, later."""
    if tracer.on_device and not tensor.is_cpu and is_in_memory(tensor):
        entry.unseen = False
        tracer.later.met(entry, tensor)
    else:
        look_now(tracer, entry, tensor)


def look_now(tracer: Tracer, entry: Entry, tensor: torch.Tensor) -> None:
    """The same, and waits for the answer."""
    entry.unseen = False
    if is_in_memory(tensor) and has_nonfinite(tensor.detach()):
        entry.tainted = tracer.met_bad = True


def meet_leaf(local: Local, entry: Entry, tensor: torch.Tensor) -> None:
    """Gradients may come to it."""
    entry.leaf = True
    if local.differentiated:
        local.replaced = True
    local.leaves[entry.cdata] = torch.utils.weak.TensorWeakRef(tensor)


def meet_viewed_leaf(tracer: Tracer, local: Local, args: Any) -> None:
    """A leaf that only ever serves through a view: `weight.t()`."""
    tensor = args[0] if args else None
    if isinstance(tensor, torch.Tensor) and tensor.requires_grad and tensor.is_leaf:
        ref = tracer.ref(tensor)
        if ref is not None and not ref[0].leaf:
            meet_leaf(local, ref[0], tensor)

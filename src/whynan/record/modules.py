"""What the parameters and buffers of the running modules are called."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator

import torch
from torch import nn

from whynan.record.storages import Entry
from whynan.seam.calls import Weak
from whynan.seam.members import is_made
from whynan.seam.private import has_storage, storage_id
from whynan.seam.threads import is_alone


class ModuleNames:
    """The modules that ran, and what their tensors are called in them."""

    def __init__(self) -> None:
        self._roots: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._holders: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._asked: set[int] = set()  # the modules that the holders were looked for
        self._last: nn.Module | None = None  # kept for its name: `Net()(x)` is gone at once

    def know(self, root: nn.Module) -> None:
        """A model whose parameters are to be called by name before it ran."""
        self._roots.add(root)

    def runs(self, root: nn.Module) -> None:
        """No other module has called it."""
        self._roots.add(root)
        self._last = root

    def let_go(self) -> None:
        """The step is over, or the recording."""
        self._last = None

    def roots(self) -> Iterator[nn.Module]:
        yield from list(self._roots)

    def parameter_name(self, tensor: torch.Tensor) -> str | None:
        """The dotted name of a parameter or buffer, from the outermost module that holds it; of a
        tensor on its own, the program's global name for it."""
        found = [
            name
            for root in self._outermost()
            for name, candidate in _named_tensors(root)
            if candidate is tensor
        ]
        return max(found, key=lambda name: name.count("."), default=None) or _global_name(tensor)

    def _outermost(self) -> list[nn.Module]:
        """The modules that ran, or the one that holds them all: a LightningModule's own forward
        may never run, and a checkpoint runs its blocks once more, on their own."""
        ran = list(self._roots)
        if {id(m) for m in ran} != self._asked:
            self._asked = {id(m) for m in ran}
            self._holders = weakref.WeakSet(_holders(ran))
        return [*self._holders, *ran]

    def name_of_storage(self, entry: Entry) -> tuple[str, str] | None:
        """("parameter" or "buffer", dotted name) of the tensor that owns this storage."""
        found = self.owner_of(entry)
        return None if found is None else found[:2]

    def owner_of(self, entry: Entry) -> tuple[str, str, torch.Tensor] | None:
        """The same, and that tensor."""
        if entry.is_gone():
            return None
        found = [
            (kind, clean(name), tensor)
            for root in self._outermost()
            for kind, items in (
                ("parameter", root.named_parameters()),
                ("buffer", root.named_buffers()),
            )
            for name, tensor in items
            if has_storage(tensor) and storage_id(tensor) == entry.cdata
        ]
        return max(found, key=lambda owner: owner[1].count("."), default=None)


def _named_tensors(root: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    for name, tensor in (*root.named_parameters(), *root.named_buffers()):
        yield clean(name), tensor


def _holders(ran: list[nn.Module]) -> list[nn.Module]:
    """The one module beyond them that all these belong to and nothing else holds; else none."""
    wanted = {id(m) for m in ran if next(m.parameters(), None) is not None}  # no loss functions
    # Python is building tuples in other threads, and fails there when somebody gets hold of them.
    if not wanted or not is_alone():
        return []
    # By type: `isinstance` would ask a lazy proxy for its class, and wake it.
    modules = [o for o in gc.get_objects() if issubclass(type(o), nn.Module)]
    inside = {id(m): {id(child) for child in m.modules()} for m in modules if is_made(m)}
    above = [m for m in modules if id(m) in inside and wanted <= inside[id(m)]]
    top = [m for m in above if not any(id(m) in inside[id(o)] for o in above if o is not m)]
    return top if len(top) == 1 else []


def _global_name(tensor: torch.Tensor) -> str | None:
    """What the script calls a tensor; None if it has no name of its own, or several."""
    script = vars(sys.modules["__main__"])
    names = [name for name, value in list(script.items()) if value is tensor]
    return names[0] if len(names) == 1 else None


def clean(name: str) -> str:
    """A dotted name without the wrapper that torch.compile puts around a model."""
    return name.replace("_orig_mod.", "")


def path_of(running: tuple[Weak, Weak] | None) -> str | None:
    """Dotted path of the running module below the outermost one, whose class stands for itself."""
    if running is None:
        return None
    root, module = running[0](), running[1]()
    if root is None or module is None:
        return None
    if root is module:
        return type(root).__name__
    for name, candidate in root.named_modules():
        if candidate is module:
            return clean(name)
    return type(module).__name__

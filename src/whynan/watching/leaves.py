"""Updates written by hand, without a recording: whether the leaves of a bad loss went bad."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.weak import TensorWeakRef

from whynan.harm.ledger import Sign
from whynan.seam.tensors import bad_values

MAX_NODES = 20_000


class Leaves:
    """What the last bad loss was differentiated for."""

    def __init__(self) -> None:
        self._leaves: list[TensorWeakRef] = []

    def remember(self, roots: Any) -> bool:
        """Those of this loss; whether their gradients are non-finite."""
        leaves = [leaf for root in roots for leaf in _leaves(root)]
        self._leaves = [TensorWeakRef(leaf) for leaf in leaves]
        return any(leaf.grad is not None and bad_values(leaf.grad) is not None for leaf in leaves)

    def spoilt(self, step: int) -> list[Sign] | None:
        """Whether one of them went bad since; None: there are none."""
        if not self._leaves:
            return None
        leaves = [leaf for weak in self._leaves if (leaf := weak()) is not None]
        self._leaves = []
        bad = [leaf for leaf in leaves if bad_values(leaf) is not None]
        return [Sign(sink="parameter", subject="a leaf tensor", step=step) for _ in bad[:1]]


def _leaves(root: Any) -> list[torch.Tensor]:
    pending = [root.grad_fn] if isinstance(root, torch.Tensor) and root.grad_fn is not None else []
    seen: set[Any] = set(pending)
    found = []
    while pending and len(seen) < MAX_NODES:
        node = pending.pop()
        variable = getattr(node, "variable", None)
        if isinstance(variable, torch.Tensor):
            found.append(variable)
        for before, _ in node.next_functions:
            if before is not None and before not in seen:
                seen.add(before)
                pending.append(before)
    return found

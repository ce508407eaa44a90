"""Updates written by hand: whether a bad loss was ever stepped with, and losses scaled by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils.weak import TensorWeakRef

from whynan.record.stats import has_nonfinite

if TYPE_CHECKING:
    from whynan.watching.guard import Seen

MAX_NODES = 20_000
LOSS_SCALE = 256.0  # a smaller factor is a weight, or the mean over a few batches


class ByHand:
    """The bad loss of a loop without an optimizer: it counts once a leaf went bad after it, or
    when the program ends; not if the next loss is finite again."""

    def __init__(self) -> None:
        self._open: Seen | None = None
        self._leaves: list[TensorWeakRef] = []

    def look(self, seen: Seen | None, roots: Any) -> Seen | None:
        """After a backward pass; `seen` if its loss was bad. Returns what is certain now."""
        if seen is None and self._open is None:
            return None
        leaves = [leaf for root in roots for leaf in _leaves(root)]
        before = [leaf for weak in self._leaves if (leaf := weak()) is not None]
        if any(_is_spoilt(leaf) for leaf in (*leaves, *before)):
            return self.end() or seen
        if seen is None:
            self._open = None
        elif self._open is None:
            self._open, self._leaves = seen, [TensorWeakRef(leaf) for leaf in leaves]
        return None

    def end(self) -> Seen | None:
        """Nobody dropped it."""
        seen, self._open = self._open, None
        return seen


def _leaves(root: Any) -> list[torch.Tensor]:
    """What a loss was differentiated for."""
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


def _is_spoilt(leaf: torch.Tensor) -> bool:
    plain = leaf.layout is torch.strided and (leaf.is_floating_point() or leaf.is_complex())
    return plain and has_nonfinite(leaf.detach())


def is_scaled(loss: torch.Tensor) -> bool:
    """Whether it is another loss times a large number, before its backward pass. Such a product
    may overflow while its gradients, which are all that is used, do not."""
    made_by: Any = loss.grad_fn
    name = made_by.name() if made_by is not None else ""
    if name not in ("MulBackward0", "DivBackward0"):
        return False
    if sum(before is not None for before, _ in made_by.next_functions) != 1:
        return False
    factor = made_by._saved_other
    if factor is None:
        factor = getattr(made_by, "_saved_self", None)
    if not isinstance(factor, (int, float, torch.Tensor)) or (
        isinstance(factor, torch.Tensor) and factor.numel() != 1
    ):
        return False
    size = abs(float(factor))
    return size >= LOSS_SCALE if name == "MulBackward0" else 0 < size <= 1 / LOSS_SCALE

"""The cheap look outside an optimizer's step: what the program takes out, what it updates by hand."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import torch
from torch.utils.weak import TensorWeakRef

from whynan.harm.ledger import Sign
from whynan.seam.reading import can_be_read
from whynan.seam.sites import capture
from whynan.seam.stats import is_only_below, number
from whynan.seam.tensors import any_bad, bad_among, bad_values, saved_tensors, tensors_in

MAX_NODES = 20_000
SAME_LEAVES = 16  # turns of a loop
_SUMMED = frozenset({torch.float32, torch.float64, torch.bfloat16})
_strided = torch.strided
Place = tuple[CodeType, Any]
IsWritten = Callable[[torch.Tensor], bool]  # by the program itself, which means it


class Outside:
    """Looks; what it means is decided elsewhere."""

    def __init__(self) -> None:
        self.meant: set[Place] = set()  # where an infinity was read that the program wrote
        self._leaves: list[TensorWeakRef] = []  # that the last loss was differentiated for
        self._born: list[TensorWeakRef] = []  # those of them that no loss before it had
        self._turns = 0
        self._waits = False  # whether one of those goes bad
        self._proof: Any = None  # of what it will go bad by

    def read(
        self, tensor: torch.Tensor, value: Any, frame: FrameType, step: int, is_written: IsWritten
    ) -> Sign | None:
        bad = _bad_read(tensor, value)
        if bad is None:
            return None
        if not math.isnan(bad) and (place_of(frame) in self.meant or is_written(tensor)):
            return None
        subject = "value read out"
        return Sign(sink="observed", subject=subject, step=step, value=bad, proof=capture(frame))

    def saved(self, obj: Any, frame: FrameType, step: int) -> Sign | None:
        if not any(bool(values.isnan().any()) for values in bad_among(saved_tensors(obj))):
            return None
        nan, frames = math.nan, capture(frame)
        return Sign(sink="observed", subject="saved tensor", step=step, value=nan, proof=frames)

    def returned(self, module: Any, output: Any, step: int) -> Sign | None:
        """By an outermost module, while no gradient was asked for."""
        if _is_finite(output):
            return None
        subject = f"output of {type(module).__name__}"
        for values in bad_among(tensors_in(output)):
            if not is_only_below(values):
                return Sign(sink="output", subject=subject, step=step, value=_worst(values))
        return None

    def spoils_leaves(self, roots: Any) -> bool:
        """Whether the gradients of what was differentiated for are non-finite. A loop has the same
        leaves in each turn, nearly always: the graph is not searched for them again."""
        leaves = [leaf for weak in self._leaves if (leaf := weak()) is not None]
        self._turns += 1
        if not leaves or len(leaves) < len(self._leaves) or self._turns % SAME_LEAVES == 1:
            known = {id(leaf) for leaf in leaves}
            leaves = [leaf for root in roots for leaf in _leaves(root)]
            self._leaves = [TensorWeakRef(leaf) for leaf in leaves]
            self._born = [TensorWeakRef(leaf) for leaf in leaves if id(leaf) not in known]
        else:
            self._born = []
        return any_bad(leaf.grad for leaf in leaves if leaf.grad is not None)

    def remember_leaves(self, proof: Any) -> None:
        """A loss or a gradient was bad: they may become so. One that was bad when it was first met has
        not: it is a proposal, which a sampler rejects."""
        self._waits, self._proof = True, proof
        born = [leaf for weak in self._born if (leaf := weak()) is not None]
        bad = {id(leaf) for leaf in born if bad_values(leaf) is not None}
        self._leaves = [weak for weak in self._leaves if id(weak()) not in bad]

    def spoilt_leaf(self, step: int) -> list[Sign] | None:
        """Whether one of those went bad since. None: nobody waits for that. What took its place may be
        a proposal that a sampler rejects: its last word tells."""
        if not self._waits:
            return None
        leaves = [leaf for weak in self._leaves if (leaf := weak()) is not None]
        self._waits, proof, self._proof = False, self._proof, None
        bad = [leaf for leaf in leaves if bad_values(leaf) is not None]
        subject = "a leaf tensor"
        return [Sign(sink="parameter", subject=subject, step=step, proof=proof) for _ in bad[:1]]


def _is_finite(output: Any) -> bool:
    """Nearly always that is all, at a third of the cost."""
    if type(output) is not torch.Tensor or output.dtype not in _SUMMED:
        return False
    if output.layout is not _strided or not can_be_read(output):
        return False
    total = number(output.sum())
    return total - total == 0


def place_of(frame: FrameType) -> Place:
    """One expression of the program."""
    return place_at(frame.f_code, frame.f_lasti)


def written(place: Place) -> str:
    """The same in another process."""
    return f"{place[0].co_filename} {place[1]}"


@functools.lru_cache(maxsize=4096)
def place_at(code: CodeType, lasti: int) -> Place:
    """By lines and columns: once a call is quickened, another instruction of it is the one that runs."""
    return code, next(itertools.islice(code.co_positions(), lasti // 2, None), lasti)


def _bad_read(tensor: Any, value: Any) -> float | None:
    """What is non-finite in a value that was read out of a tensor."""
    if isinstance(value, float):
        return value if value - value != 0 else None
    if isinstance(value, str) and "nan" not in value and "inf" not in value:
        return None
    values = None if isinstance(value, (bool, int)) else bad_values(tensor)
    return None if values is None else _worst(values)


def _worst(values: torch.Tensor) -> float:
    return math.nan if bool(values.isnan().any()) else math.inf


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

"""One rank repeats a step alone, where that is possible without a word from the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch.nn.parallel import DistributedDataParallel

from whynan.ranks.collectives import Collectives
from whynan.seam.effects import Outside
from whynan.seam.exchanges import functions_of
from whynan.seam.patches import Patches
from whynan.seam.private import functional_collectives


@contextmanager
def apart(exchanges: Collectives, replicas: list[DistributedDataParallel]) -> Iterator[None]:
    """Nothing is exchanged. Replicas keep their gradients to themselves, and so does who sums them up by
    `all_reduce`: what is bad here was so before. Whatever else the step would ask for raises `Outside`."""
    patches = Patches()
    for name in functions_of(functional_collectives):
        patches.wrap(functional_collectives, name, _refusing)
    flags = [(r, r.require_backward_grad_sync, r.require_forward_param_sync) for r in replicas]
    for replica in replicas:
        replica.require_backward_grad_sync = replica.require_forward_param_sync = False
    exchanges.apart = True
    try:
        yield
    finally:
        exchanges.apart = False
        for replica, backward, forward in flags:
            replica.require_backward_grad_sync = backward
            replica.require_forward_param_sync = forward
        patches.restore()


def _refusing(original: Callable[..., Any]) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise Outside

    return refuse

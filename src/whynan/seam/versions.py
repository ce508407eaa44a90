"""What torch does differently from one release to the next."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from whynan.seam.private import Mode, address_of, set_stance


class RecorderMode(Mode):  # type: ignore[no-untyped-call]  # torch
    """A dispatch mode that torch lets alone."""

    supports_higher_order_operators = True  # else torch refuses to run them under any mode

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would wrap the hot path twice and import all of its compiler


class Mended(weakref.ref[torch.UntypedStorage]):
    """Up to 2.9 an object comes back to life when its last Python name dies before its memory
    does; a weak reference does not know that, unless torch is asked to mend it. Nor does it know
    that the memory is given back while the header is kept, as by torch's own notes of what came
    from a worker: to mend that one would free it twice."""

    def __call__(self) -> Any:
        storage: Any = super().__call__()
        if storage is None or torch.UntypedStorage._expired(address_of(storage)):
            return None
        storage._fix_weakref()
        return storage


def release(version: str) -> tuple[int, int]:
    """(2, 13) of "2.13.0+cpu"."""
    major, minor = version.split(".")[:2]
    return int(major), int("".join(c for c in minor if c.isdigit()) or 0)


HERE = release(torch.__version__)
Weak = Callable[[torch.UntypedStorage], weakref.ref[torch.UntypedStorage]]
watch_storage: Weak = weakref.ref if HERE >= (2, 10) else Mended


@cache
def _accelerator() -> torch.device | None:
    """Up to 2.6 torch raises where there is none, which takes too long for every step."""
    try:
        return torch.accelerator.current_accelerator()
    except RuntimeError:
        return None


current_accelerator: Callable[[], torch.device | None] = (
    torch.accelerator.current_accelerator if HERE >= (2, 7) else _accelerator
)


def run_eagerly() -> Any:
    """Compiled functions run as they were written until this is left; None: torch cannot."""
    return set_stance("force_eager") if set_stance is not None else None


# The exchanges between ranks, each with the argument that is sent.
# torch 2.13 added the `_single` forms, which FSDP2 calls.
SENT = {
    "all_reduce": "tensor",
    "reduce": "tensor",
    "broadcast": "tensor",
    "all_gather": "tensor",
    "all_gather_into_tensor": "input_tensor",
    "all_gather_single": "input_tensor",
    "reduce_scatter": "input_list",
    "reduce_scatter_tensor": "input",
    "reduce_scatter_single": "input",
    "all_to_all": "input_tensor_list",
    "all_to_all_single": "input",
    "send": "tensor",
}

"""The accelerator: its random states, its free memory, and whether it is capturing a graph just now.

Nothing here waits for the device.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import torch

from whynan.seam.versions import current_accelerator

SHARE = 8  # of the free memory, what is kept there for an explanation is at most one such part
UNKNOWN_FREE = 64 << 20  # what is kept on a device that does not say how much is free


def accelerator() -> torch.device | None:
    """The kind of device that this build of torch has besides the CPU, if it is in use."""
    found = current_accelerator()
    if found is None:
        return None
    is_initialized = getattr(torch.get_device_module(found), "is_initialized", None)
    if is_initialized is None:  # MPS has no such question
        return found if torch.accelerator.is_available() else None
    return found if is_initialized() else None


def names() -> list[str]:
    """The processor, and what is in use besides it."""
    found = [f"cpu ({os.cpu_count()} cores)"]
    kind = accelerator()
    if kind is not None:
        n = torch.accelerator.device_count()
        name = getattr(torch.get_device_module(kind), "get_device_name", None)
        found.append((f"{n} x " if n > 1 else "") + (str(name(0)) if name else kind.type))
    return found


def random_states() -> list[torch.Tensor] | None:
    """Of every device of the accelerator; their generators lie with the host."""
    kind = accelerator()
    if kind is None:
        return None
    module: Any = torch.get_device_module(kind)
    if kind.type == "mps":  # there is one
        return [module.get_rng_state()]
    return [module.get_rng_state(i) for i in range(torch.accelerator.device_count())]


def put_back_random_states(states: list[torch.Tensor]) -> None:
    kind = accelerator()
    module: Any = torch.get_device_module(kind)
    for index, state in enumerate(states):
        if kind is not None and kind.type == "mps":
            module.set_rng_state(state)
        else:
            module.set_rng_state(state, index)


def budget(device: torch.device, most: int) -> int:
    """How many bytes may be kept on a device: `most`, or a share of what is free there."""
    if device.type == "cpu":
        return most
    return min(most, _free_bytes(device) // SHARE)


def _free_bytes(device: torch.device) -> int:
    asked: list[Any] = [
        getattr(torch.accelerator, "get_memory_info", None),  # since torch 2.9
        getattr(torch.get_device_module(device), "mem_get_info", None),
    ]
    for ask in asked:
        try:
            return int(ask(device)[0])
        except Exception:  # not every back end answers
            continue
    return UNKNOWN_FREE


def is_capturing() -> bool:
    """Whether the current stream records a graph: what is launched now becomes part of it, and who
    waits breaks it."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch
        return torch.cuda.is_current_stream_capturing()
    kind = accelerator()
    if kind is None:
        return False
    asks = getattr(torch.accelerator.current_stream(), "is_capturing", None)  # since torch 2.13
    return bool(asks()) if callable(asks) else False


def stream_of(device: torch.device) -> int:
    """The number of the stream that this thread uses there now."""
    if device.type == "mps":  # there is one
        return 0
    return torch.accelerator.current_stream(device).stream_id


def wait_for_all(devices: set[torch.device]) -> None:
    """For everything on them, in whichever stream."""
    for device in devices:
        torch.accelerator.synchronize(device)


@functools.cache
def has_float64(kind: str) -> bool:
    """MPS has not."""
    try:
        torch.empty(0, dtype=torch.float64, device=kind)
    except (RuntimeError, TypeError):
        return False
    return True


def double(x: torch.Tensor, *, copy: bool = False) -> torch.Tensor:
    """In float64 or complex128, on the CPU if its own device has no such type."""
    kind = torch.complex128 if x.is_complex() else torch.float64
    device = x.device if has_float64(x.device.type) else torch.device("cpu")
    return x.to(device, kind, copy=copy)

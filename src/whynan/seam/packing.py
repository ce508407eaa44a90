"""Tensors and arguments of a call as plain values that a recording can hold, and back."""

from __future__ import annotations

import base64
import ctypes
import math
import zlib
from collections.abc import Callable
from typing import Any

import torch

from whynan.model import Held

QUICKLY = 1  # of zlib: values hardly get smaller by trying hard


class Unpackable(ValueError):
    """An argument that means nothing outside its process, such as a function."""


def pack(tensor: torch.Tensor) -> Held:
    """A tensor with its values."""
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    size = plain.numel() * plain.element_size()
    data = ctypes.string_at(plain.data_ptr(), size) if size else b""
    return Held(
        shape=tuple(tensor.shape),
        dtype=named(tensor.dtype),
        stride=tuple(tensor.stride()),
        device=tensor.device.type,
        data=base64.b85encode(zlib.compress(data, QUICKLY)).decode() if data else "",
    )


def hollow(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> Held:
    """One whose values nobody reads."""
    return Held(shape=tuple(shape), dtype=named(dtype), device=device)


def unpack(held: Held) -> torch.Tensor:
    """The tensor on the CPU, its values in order."""
    dtype: torch.dtype = getattr(torch, held.dtype)
    if not held.data:
        return torch.zeros(held.shape, dtype=dtype)
    size = math.prod(held.shape) * dtype.itemsize
    # A few bytes can be packed zeros without end.
    data = bytearray(zlib.decompressobj().decompress(base64.b85decode(held.data), size + 1))
    if len(data) != size:
        raise ValueError("a tensor of the recording is damaged")
    return torch.frombuffer(data, dtype=dtype).reshape(held.shape)


def named(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def plain(value: Any, tensor: Callable[[Any], Any | None]) -> Any:
    """An argument as JSON; `tensor` says what stands for one of the tensors."""
    found = tensor(value)
    if found is not None:
        return found
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, complex):
        return {"complex": [repr(value.real), repr(value.imag)]}
    if isinstance(value, (list, tuple)):
        return [plain(item, tensor) for item in value]
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        return {"torch": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": value.type}
    raise Unpackable(type(value).__name__)


def lively(value: Any, stands: Callable[[dict[str, Any]], Any]) -> Any:
    """The same back; `stands` gives what a place holder stands for."""
    if isinstance(value, list):
        return [lively(item, stands) for item in value]
    if not isinstance(value, dict):
        return value
    if "float" in value:
        return float(value["float"])
    if "complex" in value:
        return complex(*map(float, value["complex"]))
    if "torch" in value:
        return getattr(torch, value["torch"])
    if "device" in value:
        return torch.device(value["device"])
    return stands(value)

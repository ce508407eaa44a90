"""What whynan finds here: versions, devices, the names of torch's inside, and what is lost without some."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from whynan.seam.supported import need_torch
from whynan.version import __version__

# Beside torch, what a report of a fault is often about.
BESIDE = ("numpy", "lightning", "pytorch-lightning", "transformers", "accelerate", "trl", "peft")


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One kind of device that this torch can compute on."""

    kind: str  # as in `torch.device(kind)`
    names: tuple[str, ...]  # one for each of them


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchName:
    """One name that whynan takes from the inside of torch."""

    path: str
    since: str
    is_present: bool
    instead: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All of it, for text and JSON."""

    versions: dict[str, str]
    system: str
    devices: tuple[Device, ...]
    names: tuple[TorchName, ...]
    lost: tuple[str, ...]  # what this torch does without, a sentence each


def gather() -> Facts:
    """Raises what there is to say where torch is missing or cannot be watched."""
    need_torch()
    from whynan.seam.support import losses, table

    return Facts(
        versions=_versions(),
        system=f"{platform.system()} {platform.release()}, {platform.machine()}",
        devices=tuple(_devices()),
        names=tuple(
            TorchName(path=r.name, since=r.since, is_present=r.is_present, instead=r.instead)
            for r in table()
        ),
        lost=tuple(losses()),
    )


def _versions() -> dict[str, str]:
    import torch

    found = {
        "whynan": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
    }
    for name, number in (("cuda", torch.version.cuda), ("hip", torch.version.hip)):
        if number:
            found[name] = number
    cudnn: Any = torch.backends.cudnn
    if cudnn.is_available():
        found["cudnn"] = str(cudnn.version())
    for package in BESIDE:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _devices() -> list[Device]:
    """The CPU, and the accelerator that this build of torch finds."""
    import torch

    processor = platform.processor() or platform.machine()
    found = [Device(kind="cpu", names=(f"{processor}, {os.cpu_count()} cores",))]
    if torch.accelerator.is_available():
        kind = torch.accelerator.current_accelerator()
        assert kind is not None  # it is available
        names = [_name_of(kind, index) for index in range(torch.accelerator.device_count())]
        found.append(Device(kind=kind.type, names=tuple(names)))
    return found


def _name_of(kind: Any, index: int) -> str:
    import torch

    try:
        return str(torch.get_device_module(kind).get_device_name(index))
    except Exception:  # not every back end has names for its devices
        return f"{kind.type}:{index}"

"""The Python side of the toy accelerator: builds it, names it, and reads what it counted."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import Any

SOURCE = Path(__file__).with_name("toy.cpp")
MEMORY = 1 << 30  # bytes that the device has
COMPILER = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")


@dataclass
class Counts:
    """What happened on the device; the order is that of the counters in C++."""

    kernels: int = 0
    to_host: int = 0  # copies that were waited for
    to_host_later: int = 0  # copies to pinned memory that nobody waited for
    from_host: int = 0
    syncs: int = 0  # every wait of the host for the device
    events: int = 0
    queries: int = 0  # asking without waiting
    bytes: int = 0  # that are allocated; never reset

    def __sub__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, f.name) - getattr(other, f.name) for f in fields(self)))


_library: Any = None


def load() -> Any:
    """Register the device; building it takes half a minute, once for each version of torch."""
    global _library
    if _library is not None:
        return _library
    import torch
    from torch.utils import backend_registration

    path = built(torch)
    torch.ops.load_library(str(path))
    library = _library = ctypes.CDLL(str(path))
    library.toy_counter.restype = library.toy_state_size.restype = ctypes.c_int64
    backend_registration.rename_privateuse1_backend("toy")
    torch._register_device_module("toy", _module(library))
    backend_registration.generate_methods_for_privateuse1_backend()
    return library


def counts() -> Counts:
    return Counts(*(load().toy_counter(i) for i in range(len(fields(Counts)))))


@contextlib.contextmanager
def counting() -> Iterator[Counts]:
    """The difference, filled in at the end of the block."""
    found, before = Counts(), counts()
    try:
        yield found
    finally:
        for field in fields(Counts):
            setattr(found, field.name, getattr(counts() - before, field.name))


def lag(kernels: int) -> None:
    """An event is reached when so many kernels were launched after it."""
    load().toy_set_lag(ctypes.c_int64(kernels))


def share_generator(shares: bool = True) -> None:
    """Draw from the CPU's generator: then a program computes there what it computes on the CPU."""
    load().toy_share_generator(shares)


def without_doubles() -> None:
    """The device has no float64 from now on, as MPS."""
    load().toy_without_doubles(True)


@contextlib.contextmanager
def capturing() -> Iterator[None]:
    """As in the capture of a graph: whoever waits for the device breaks it."""
    load().toy_capture(True)
    try:
        yield
    finally:
        load().toy_capture(False)


# ---- building -----------------------------------------------------------------------------------


def built(torch: Any) -> Path:
    """The library, made by the first process that asks."""
    digest = hashlib.sha256(SOURCE.read_bytes() + torch.__version__.encode()).hexdigest()[:12]
    name = f"whynan-toy-{torch.__version__}-py{sys.version_info[0]}{sys.version_info[1]}-{digest}"
    folder = Path(tempfile.gettempdir()) / f"{name}-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / "toy.so"
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            _compile(path.with_suffix(".new"))
            path.with_suffix(".new").rename(path)
    return path


def _compile(path: Path) -> None:
    """`torch.utils.cpp_extension` knows where things are; its own build breaks at a space in a path."""
    from torch.utils import cpp_extension as build

    if COMPILER is None:
        raise RuntimeError("the toy accelerator needs a C++ compiler, and there is none")
    include = [f"-I{p}" for p in build.include_paths()]
    libraries = [f"-L{p}" for p in build.library_paths()]
    subprocess.run(
        [
            *(COMPILER, "-shared", "-fPIC", "-O1", "-std=c++20", "-w", *include, str(SOURCE)),
            *(*libraries, "-lc10", "-ltorch_cpu", "-ltorch", "-o", str(path)),
        ],
        check=True,
    )


# ---- what torch expects of a device's module ------------------------------------------------------


def _module(library: Any) -> ModuleType:
    import torch

    def index(device: Any) -> int:
        if isinstance(device, int):
            return device
        found = torch.device("toy" if device is None else device).index
        return library.toy_device() if found is None else found

    def get_rng_state(device: Any = None) -> torch.Tensor:
        state = torch.empty(library.toy_state_size(), dtype=torch.uint8, device="cpu")
        library.toy_get_state(index(device), ctypes.c_void_p(state.data_ptr()))
        return state

    def set_rng_state(state: torch.Tensor, device: Any = None) -> None:
        library.toy_set_state(index(device), ctypes.c_void_p(state.cpu().contiguous().data_ptr()))

    def manual_seed_all(seed: int) -> None:
        for device in range(2):
            library.toy_seed(device, ctypes.c_uint64(seed & (2**64 - 1)))

    @contextlib.contextmanager
    def device(chosen: Any) -> Iterator[None]:
        before = library.toy_device()
        library.toy_set_device(index(chosen))
        try:
            yield
        finally:
            library.toy_set_device(before)

    module: Any = ModuleType("torch.toy")
    module.device = device
    module.is_available = lambda: True
    module.is_initialized = lambda: True
    module.mem_get_info = lambda device=None: (max(0, MEMORY - counts().bytes), MEMORY)
    module.synchronisations = lambda: counts().syncs
    module.device_count = lambda: 2
    module.current_device = library.toy_device
    module.set_device = lambda device: library.toy_set_device(index(device))
    module.synchronize = lambda device=None: library.toy_synchronize()
    module._is_in_bad_fork = lambda: False
    module.manual_seed_all = module.manual_seed = manual_seed_all
    module.get_rng_state, module.set_rng_state = get_rng_state, set_rng_state
    module.get_amp_supported_dtype = lambda: [torch.float16, torch.bfloat16]
    found: ModuleType = module
    return found

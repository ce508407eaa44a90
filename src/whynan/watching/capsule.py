"""What is needed to repeat the failing step elsewhere: safetensors and JSON, no pickle."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch

from whynan.files import write_atomically
from whynan.record.modules import clean
from whynan.seam.private import has_storage
from whynan.seam.randomness import Saved
from whynan.seam.reading import readable
from whynan.secrets import without_secret_values, without_secrets

if TYPE_CHECKING:
    from whynan.watching.watch import Watch

SCHEMA = "whynan.capsule/1"
TENSORS, MANIFEST = "tensors.safetensors", "capsule.json"
# Settings that change numbers; the rest of the environment is the user's own business.
SETTINGS = ("CUDA_", "CUBLAS_", "TORCH", "PYTORCH", "OMP_", "MKL_", "NCCL_", "PYTHONHASHSEED")


def parts(folder: Path, watch: Watch, program: list[str]) -> list[Callable[[], None]]:
    """Weights, buffers, optimizer state, batch and random states as the step began: what to do to
    write each file, so that one that fails takes no other along."""
    names = dict(_names(watch))
    tensors: dict[str, torch.Tensor] = {}
    optimizers = list(watch.progress.optimizers)
    settings = []
    for number, optimizer in enumerate(optimizers):
        settings.append(_optimizer(optimizer, f"optimizer.{number}", names, tensors))
    for parameter, name in names.items():
        tensors.setdefault(name, parameter)
    tensors |= {f"buffer.{name}": value for name, value in watch.rewind.buffers.at_start().items()}
    given = watch.rewind.batches.given
    batches = [_described(b.item, f"batch.{i}", tensors) for i, b in enumerate(given)]
    states = given[0].after if given else watch.rewind.start_states
    random = _random(states, tensors) if states is not None else None
    parts = {k: readable(t) for k, t in tensors.items()}  # of a sharded one, this rank's part
    ready = {
        k: part.cpu().contiguous().clone()
        for k, part in parts.items()
        if part is not None and _storable(part)
    }
    manifest = {
        "schema": SCHEMA,
        "program": without_secrets(program),
        "step": watch.progress.step,
        "optimizers": settings,
        "batches": batches,
        "random": random,
        "environment": environment(),
    }
    text = json.dumps(manifest, indent=1, default=str) + "\n"
    return [
        partial(_write_tensors, folder / TENSORS, ready),
        partial(write_atomically, folder / MANIFEST, text, private=True),
    ]


def _write_tensors(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    """In a new folder first, which is the owner's alone."""
    from safetensors.torch import save_file

    with TemporaryDirectory(dir=path.parent, prefix=".") as folder:
        temporary = Path(folder) / TENSORS
        save_file(tensors, temporary)
        temporary.chmod(0o600)
        os.replace(temporary, path)


def environment() -> dict[str, Any]:
    """What the numbers depend on."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "torch": torch.__version__,
        "numpy": getattr(sys.modules.get("numpy"), "__version__", None),
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "default_dtype": str(torch.get_default_dtype()),
        "settings": without_secret_values(
            {k: v for k, v in sorted(os.environ.items()) if k.startswith(SETTINGS)}
        ),
    }


def _names(watch: Watch) -> Iterator[tuple[torch.Tensor, str]]:
    for number, root in enumerate(watch.recorder.names.roots()):
        for name, parameter in root.named_parameters():
            yield parameter, f"model.{number}.{clean(name)}"


def _optimizer(
    optimizer: Any, prefix: str, names: dict[torch.Tensor, str], tensors: dict[str, torch.Tensor]
) -> dict[str, Any]:
    for g, group in enumerate(optimizer.param_groups):
        for i, parameter in enumerate(group["params"]):
            name = names.setdefault(parameter, f"{prefix}.parameter.{g}.{i}")
            for key, value in optimizer.state.get(parameter, {}).items():
                if isinstance(value, torch.Tensor):
                    tensors[f"{prefix}.{key}.{name}"] = value
    groups = [
        {
            **{k: v for k, v in group.items() if isinstance(v, (int, float, str, bool, tuple))},
            "params": [names[p] for p in group["params"]],
        }
        for group in optimizer.param_groups
    ]
    return {"class": type(optimizer).__qualname__, "groups": groups}


def _described(item: Any, name: str, tensors: dict[str, torch.Tensor]) -> Any:
    """The shape of a batch, with a tensor's name where a tensor stands."""
    if isinstance(item, torch.Tensor):
        tensors[name] = item
        return {"tensor": name}
    if isinstance(item, dict):
        return {str(k): _described(v, f"{name}.{k}", tensors) for k, v in item.items()}
    if isinstance(item, (list, tuple)):
        return [_described(v, f"{name}.{i}", tensors) for i, v in enumerate(item)]
    return item if isinstance(item, (int, float, str, bool, type(None))) else repr(item)


def _random(states: Saved, tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    tensors["random.torch"] = states.torch
    for kind in ("python", "numpy"):
        value = getattr(states, kind)
        if isinstance(value, tuple) and isinstance(value[0], bytes):
            tensors[f"random.{kind}"] = torch.frombuffer(bytearray(value[0]), dtype=torch.uint8)
    described = [
        _described(s, f"random.generators.{i}", tensors) for i, s in enumerate(states.generators)
    ]
    return {"generators": described}


def _storable(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_quantized and has_storage(tensor)

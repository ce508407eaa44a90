"""A copy of the buffers that a forward pass changes: running statistics and the like."""

from __future__ import annotations

import threading
import weakref

import torch
from torch import nn

from whynan.seam.private import NormBase, buffers_of, foreach_copy, version_of
from whynan.seam.stats import has_nonfinite

MAX_BYTES = 64 << 20


class Buffers:
    """Knows the buffers of the program's models and their values at the start of the step."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # threads may train models of their own
        self._modules: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._owners: list[tuple[weakref.ref[nn.Module], str, str]] | None = None
        self._live: list[torch.Tensor] = []
        self._saved: list[torch.Tensor] = []
        self._names: list[str] = []
        self._versions: list[int] = []
        self.variances: list[torch.Tensor] = []  # running ones, which every step moves

    def buffers_made(self, module: nn.Module) -> None:
        """A module got a buffer, or came with some out of a copy or a file."""
        self._modules.add(module)
        self._owners = None

    def know(self, model: nn.Module) -> None:
        """A model that existed before."""
        self._modules.update(m for m in model.modules() if buffers_of(m))
        self._owners = None

    def _find(self) -> list[tuple[weakref.ref[nn.Module], str, str]]:
        return [
            (weakref.ref(module), name, f"{type(module).__name__}.{name}")
            for module in list(self._modules)
            for name, buffer in buffers_of(module).items()
            if buffer is not None
        ]

    def save(self) -> None:
        """Copy what has changed since the last time, as cheaply as possible."""
        with self._lock:
            self._save()

    def _save(self) -> None:
        if self._owners is None:
            self._owners = self._find()
        if not self._owners:
            return
        found = []
        for weak, name, path in self._owners:
            module = weak()
            buffer = buffers_of(module).get(name) if module is not None else None
            if buffer is not None and _can_be_copied(buffer):
                # batch_norm's statistics change without a new version
                always = isinstance(module, NormBase)
                found.append((buffer, path, always))
        if len(found) != len(self._live) or any(
            f[0] is not b for f, b in zip(found, self._live, strict=True)
        ):
            self._copy_all([f[0] for f in found], [f[1] for f in found])
            return
        changed = [
            i
            for i, (buffer, _, always) in enumerate(found)
            if always or version_of(buffer) != self._versions[i]
        ]
        if changed:
            with torch.no_grad():
                foreach_copy([self._saved[i] for i in changed], [self._live[i] for i in changed])
            for i in changed:
                self._versions[i] = version_of(self._live[i])

    def _copy_all(self, live: list[torch.Tensor], names: list[str]) -> None:
        self._live, self._names, self._saved = live, names, []
        pairs = zip(names, live, strict=True)
        self.variances = [
            b for n, b in pairs if n.endswith(".running_var") and b.is_floating_point()
        ]
        self._versions = [version_of(b) for b in live]
        if sum(b.numel() * b.element_size() for b in live) <= MAX_BYTES:
            self._saved = [b.detach().clone() for b in live]
        else:
            self._live = self.variances = []

    def restore(self) -> None:
        """Put the values of the step's start back."""
        with torch.no_grad():
            for buffer, saved in zip(self._live, self._saved, strict=True):
                buffer.copy_(saved)
        self._versions = [version_of(b) for b in self._live]

    @property
    def live(self) -> list[torch.Tensor]:
        return self._live

    def at_start(self) -> dict[str, torch.Tensor]:
        """By dotted name, as they were when the step began."""
        return dict(zip(self._names, self._saved, strict=True)) if self._saved else {}

    def spoilt(self) -> str | None:
        """The name of a variance that became non-finite in this step; else None."""
        for name, now, before in zip(self._names, self._live, self._saved, strict=True):
            if any(now is v for v in self.variances) and has_nonfinite(now.detach()):
                return None if has_nonfinite(before) else name
        return None

    def statistics(self) -> list[tuple[str, torch.Tensor]]:
        """The floating buffers that are followed, with their names."""
        pairs = zip(self._names, self._live, strict=True) if self._live else ()
        return [(n, b) for n, b in pairs if b.is_floating_point()]


def _can_be_copied(buffer: torch.Tensor) -> bool:
    plain = type(buffer) in (torch.Tensor, nn.Parameter, nn.Buffer)
    return plain and buffer.layout is torch.strided and not buffer.is_meta  # asked for each step

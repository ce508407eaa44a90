"""How the values of each layer are spread: a sample of its weights and gradients, in bins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal

import torch

from whynan.model import HistoryRow, LayerSpread
from whynan.record.modules import clean
from whynan.seam.reading import readable

if TYPE_CHECKING:
    from whynan.watching.watch import Watch

MOST_LAYERS = 50
MOST_VALUES = 1 << 12  # of one layer, evenly spread
BINS = 32  # TensorBoard itself draws thirty

Kind = Literal["weights", "gradients"]


@torch.no_grad()
def spreads(
    roots: Iterable[torch.nn.Module], optimizers: Iterable[torch.optim.Optimizer]
) -> Iterator[LayerSpread]:
    """Of every layer that a model or an optimizer has, up to a limit."""
    taken: list[tuple[str, Kind, torch.Tensor]] = []
    for name, parameter in named(roots, optimizers)[:MOST_LAYERS]:
        taken += [(name, "weights", s) for s in _sample(parameter)]
        taken += [(name, "gradients", s) for s in _sample(parameter.grad)]
    if not taken:
        return
    sizes = [s.numel() for _, _, s in taken]
    if len({s.device for _, _, s in taken}) == 1:  # one wait for the device, not one for each
        samples = torch.split(torch.cat([s for _, _, s in taken]).cpu(), sizes)
    else:
        samples = tuple(s.cpu() for _, _, s in taken)
    for (name, kind, _), sample in zip(taken, samples, strict=True):
        finite = sample[sample.isfinite()]
        if finite.numel():
            yield _spread(name, kind, finite)


def named(
    roots: Iterable[torch.nn.Module], optimizers: Iterable[torch.optim.Optimizer]
) -> list[tuple[str, torch.Tensor]]:
    """Each parameter once, under a name that no other one has."""
    owned: dict[int, tuple[torch.Tensor, str, str]] = {}
    # A part of a model that is called by itself is a root, too: the whole one names it better.
    for root in sorted(roots, key=lambda r: -sum(1 for _ in r.modules())):
        for name, parameter in root.named_parameters():
            owned.setdefault(id(parameter), (parameter, type(root).__name__, clean(name)))
    for optimizer in optimizers:
        for given in (p for group in optimizer.param_groups for p in group["params"]):
            owned.setdefault(id(given), (given, "", f"parameter {len(owned)}"))
    count = Counter(name for _, _, name in owned.values())
    found: dict[str, torch.Tensor] = {}
    for tensor, owner, name in owned.values():
        full = f"{owner}.{name}" if count[name] > 1 else name  # a generator and its discriminator
        again = next(n for n in range(1, len(owned) + 2) if _numbered(full, n) not in found)
        found[_numbered(full, again)] = tensor
    return list(found.items())


def _numbered(name: str, n: int) -> str:
    return name if n == 1 else f"{name} ({n})"


def _sample(tensor: torch.Tensor | None) -> list[torch.Tensor]:
    """One flat sample, taken without a copy of the whole; none of what cannot be sampled."""
    if tensor is None or tensor.layout is not torch.strided or not tensor.is_floating_point():
        return []
    values = readable(tensor)
    if values is None:
        return []
    count = values.numel()
    every = max(1, -(-count // MOST_VALUES))
    span = sum((n - 1) * step for n, step in zip(values.shape, values.stride(), strict=True)) + 1
    if not count or span != count:  # with gaps, or the same value several times
        return []
    flat = values.as_strided((-(-count // every),), (every,), values.storage_offset())
    return [flat.float()]


def _spread(layer: str, kind: Kind, values: torch.Tensor) -> LayerSpread:
    low, high = (float(v) for v in values.aminmax())
    wide = values.double()
    counts, limits = [values.numel()], [high]
    if 0 < high - low < torch.finfo(torch.float32).max:
        counts = [int(c) for c in values.histc(BINS, low, high).tolist()]
        limits = [low + (high - low) * (i + 1) / BINS for i in range(BINS)]
    return LayerSpread(
        layer=layer, kind=kind, min=low, max=high, sum=float(wide.sum()),
        sum_squares=float(wide.square().sum()), limits=tuple(limits), counts=tuple(counts),
    )  # fmt: skip


class LayersOf:
    """The layers and the history of a watched program, for a board that is drawn meanwhile."""

    def __init__(self, watch: Watch, models: list[torch.nn.Module]) -> None:
        self._watch = watch
        self._models = models

    def spreads(self) -> Iterator[LayerSpread]:
        roots = self._models or self._watch.recorder.names.roots()
        return spreads(roots, self._watch.progress.optimizers)

    def rows(self) -> tuple[HistoryRow, ...]:
        return self._watch.recording().history

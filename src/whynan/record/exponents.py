"""How the magnitudes of a tensor are spread over the powers of two."""

from __future__ import annotations

import torch

from whynan.seam.devices import double
from whynan.seam.stats import ordinary

MOST_VALUES = 1 << 20


@torch.no_grad()
def exponents_of(x: torch.Tensor) -> dict[int, int]:
    """Counts by binary exponent, of the finite values that are not 0; of very many, a sample.

    >>> exponents_of(torch.tensor([0.0, 1.0, 1.5, -4.0, float("inf")]))
    {0: 2, 2: 1}
    """
    if not (x.is_floating_point() or x.is_complex()) or x.layout is not torch.strided:
        return {}
    flat = ordinary(x.detach()).reshape(-1)
    sizes = double(flat[:: flat.numel() // MOST_VALUES + 1].abs())
    sizes = sizes[torch.isfinite(sizes) & (sizes > 0)]
    found, counts = torch.unique(torch.frexp(sizes).exponent - 1, return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))

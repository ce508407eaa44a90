"""The magnitudes of an array as a small picture: one bar for each power of two."""

from __future__ import annotations

import html
import math
import sys
from collections.abc import Mapping
from typing import Any

from whynan.model import number

MOST = 1 << 14  # values that stand for all: a picture needs no more, and the check stays as fast
COPIED = 1 << 20  # an array that is no single run of memory is copied up to this size
WIDTH, HEIGHT = 160, 28


def exponents_of(array: Any) -> dict[int, int] | None:
    """Counts by binary exponent, of finite values other than 0; of very many, a sample.

    >>> import numpy
    >>> exponents_of(numpy.array([0.0, 1.0, 1.5, -4.0, math.inf]))
    {0: 2, 2: 1}
    """
    import numpy as np

    sample = _sample(array)
    if sample is None:
        return None
    sizes = np.abs(sample).astype(np.float64)
    sizes = sizes[np.isfinite(sizes) & (sizes > 0)]
    found, counts = np.unique(np.frexp(sizes)[1] - 1, return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))


def _sample(array: Any) -> Any:
    """Some finite values as a NumPy array; None where that would cost more than a look."""
    import numpy as np

    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        if not array.is_floating_point() or array.layout is not torch.strided or array.is_meta:
            return None
        if type(array) not in (torch.Tensor, torch.nn.Parameter) or not array.numel():
            return None
        if not array.is_contiguous() and array.numel() > COPIED:
            return None
        flat = array.detach().reshape(-1)
        some = flat[:: flat.numel() // MOST + 1].double()
        return some[torch.isfinite(some)].cpu().numpy()  # finite: reading it out is no harm
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        return None
    single = array.flags.c_contiguous or array.flags.f_contiguous
    if array.dtype.kind != "f" or not array.size or not (single or array.size <= COPIED):
        return None
    flat = array.ravel(order="K")
    return flat[:: flat.size // MOST + 1]


def draw(exponents: Mapping[int, int]) -> str:
    """An SVG of a line's height; its words are its title."""
    low, high = min(exponents), max(exponents)
    first, last = low - 1, max(high + 1, low + 8)
    wide = WIDTH / (last - first + 1)
    most = max(exponents.values())
    bars = []
    for exponent, n in sorted(exponents.items()):
        # A single value among thousands must still be seen: heights are logarithmic.
        tall = 3 + (HEIGHT - 4) * math.log1p(n) / math.log1p(most)
        x = (exponent - first) * wide
        bars.append(
            f'<rect x="{x:.1f}" y="{HEIGHT - tall:.1f}" width="{max(wide * 0.9, 1):.1f}" '
            f'height="{tall:.1f}"/>'
        )
    words = f"magnitudes from {number(2.0**low)} to {number(2.0 ** min(high + 1, 1023))}"
    title = html.escape(words)
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{title}" fill="currentColor"><title>{title}</title>{"".join(bars)}</svg>'
    )

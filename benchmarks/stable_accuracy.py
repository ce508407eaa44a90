"""The largest error of the naive form and of ours, in value and gradient, against exact arithmetic.

python benchmarks/stable_accuracy.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp
import torch
from torch import Tensor

from whynan import stable

mp.mp.dps = 200

Function = Callable[[Tensor], Tensor]


def spread(low: float, high: float) -> Tensor:
    return torch.logspace(low, high, 60, dtype=torch.float64)


def both(x: Tensor) -> Tensor:
    return torch.cat([-x, x])


CASES: dict[str, tuple[str, Function, Function, Any, Any, Tensor]] = {
    "log1mexp": ("log(1 - exp(x))", lambda x: torch.log(1 - x.exp()), stable.log1mexp, lambda x: mp.log(-mp.expm1(x)), lambda x: -1 / mp.expm1(-x), -spread(-10, 2)),
    "log_cosh": ("log(cosh(x))", lambda x: torch.log(torch.cosh(x)), stable.log_cosh, lambda x: mp.log(mp.cosh(x)), mp.tanh, both(spread(-4, 3))),
    "tanh_log_det": ("log(1 - tanh(x)**2)", lambda x: torch.log(1 - torch.tanh(x) ** 2), stable.tanh_log_det, lambda x: -2 * mp.log(mp.cosh(x)), lambda x: -2 * mp.tanh(x), both(spread(-4, 3))),
    "softplus_inv": ("log(exp(y) - 1)", lambda y: torch.log(y.exp() - 1), stable.softplus_inv, lambda y: mp.log(mp.expm1(y)), lambda y: -1 / mp.expm1(-y), spread(-10, 2.5)),
    "expm1_minus": ("exp(x) - 1 - x", lambda x: x.exp() - 1 - x, stable.expm1_minus, lambda x: mp.expm1(x) - x, mp.expm1, both(spread(-6, 1))),
    "safe_acos": ("acos(clamp(x, -1, 1))", lambda x: torch.acos(x.clamp(-1, 1)), stable.safe_acos, mp.acos, lambda x: -1 / mp.sqrt((1 - x) * (1 + x)), 1 - spread(-5.9, -0.1)),
    "safe_norm": ("sqrt((x**2).sum())", lambda x: torch.stack([x, 2 * x], -1).square().sum(-1).sqrt(), lambda x: stable.safe_norm(torch.stack([x, 2 * x], -1)), lambda x: abs(x) * mp.sqrt(5), lambda x: mp.sign(x) * mp.sqrt(5), spread(-30, 30)),
    "safe_atan2": ("atan2(x, 1e-20)", lambda x: torch.atan2(x, torch.full_like(x, 1e-20)), lambda x: stable.safe_atan2(x, torch.full_like(x, 1e-20)), lambda x: mp.atan2(x, mp.mpf(float(torch.tensor(1e-20)))), lambda x: (c := mp.mpf(float(torch.tensor(1e-20)))) / (x * x + c * c), spread(-24, -16)),
}  # fmt: skip


def worst(got: Tensor, wanted: list[Any]) -> str:
    """The largest relative error, and how many are not finite at all."""
    errors, broken = [], 0
    for ours, exact in zip(got.double().tolist(), wanted, strict=True):
        if ours - ours != 0:
            broken += 1
        elif abs(exact) > 1e-37:
            errors.append(abs(mp.mpf(ours) - exact) / abs(exact))
    text = f"{float(max(errors, default=mp.mpf(0))):.1e}"
    return text + (f", {broken} of {len(wanted)} not finite" if broken else "")


def main() -> None:
    print(
        "| function | naive form | naive, value | ours, value | naive, gradient | ours, gradient |"
    )
    print("|---|---|---|---|---|---|")
    for name, (text, naive, ours, value, slope, grid) in CASES.items():
        points = grid.float()
        exact = [mp.mpf(v) for v in points.double().tolist()]
        kept = [i for i, p in enumerate(exact) if abs(value(p)) < 3e38 and abs(slope(p)) < 3e38]
        cells = []
        for f in (naive, ours):
            x = points[kept].clone().requires_grad_()
            y = f(x)
            (g,) = torch.autograd.grad(y.sum(), x)
            cells.append((worst(y, [value(exact[i]) for i in kept]), worst(g, [slope(exact[i]) for i in kept])))  # fmt: skip
        print(
            f"| `{name}` | `{text}` | {cells[0][0]} | {cells[1][0]} | {cells[0][1]} | {cells[1][1]} |"
        )


if __name__ == "__main__":
    main()

"""Functions that are finite in eager mode and not when compiled, by this torch: is each one located?

PYTHONPATH=. python benchmarks/compiled_only.py        # prints a table; needs a C++ compiler
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.record.test_compiled import climbed

SMALL = torch.tensor([1e-9, 3e-9, 0.3, 0.5]).repeat(12)
HUGE = torch.tensor([1e20, 3e25, 2.0, 30.0]).repeat(12)
TINY64 = torch.tensor([1e-20, 3e-19, 0.3, 0.5], dtype=torch.float64).repeat(12)


def log_expm1(x: Tensor) -> Tensor:
    return torch.log(torch.expm1(x))


def bose_einstein(x: Tensor) -> Tensor:
    return 1 / torch.expm1(x)


def inverse_artanh(x: Tensor) -> Tensor:
    return x / torch.atanh(x)


def log_erf(x: Tensor) -> Tensor:
    return torch.log(torch.erf(x))


def over_elu(x: Tensor) -> Tensor:
    return 1 / F.elu(-x)


def log_selu(x: Tensor) -> Tensor:
    return torch.log(-F.selu(-x))


def hyperbolic_distance(x: Tensor) -> Tensor:
    return torch.acosh(x)


def softplus_inverse_gradient(x: Tensor) -> Tensor:
    return (x + torch.log(torch.expm1(x.abs()))).clamp(-1e4, 1e4)


FUNCTIONS: list[tuple[Callable[[Tensor], Tensor], Tensor]] = [
    (log_expm1, SMALL), (bose_einstein, SMALL), (inverse_artanh, SMALL), (log_erf, SMALL),
    (over_elu, SMALL), (log_selu, SMALL), (hyperbolic_distance, HUGE), (log_expm1, TINY64),
    (softplus_inverse_gradient, SMALL.clone().requires_grad_()),
]  # fmt: skip


def main() -> None:
    print(
        "| function | type | turns bad at | operation | compiled | eager |\n|---|---|---|---|---|---|"
    )
    for function, x in FUNCTIONS:
        found = climbed(function, x, "inductor")
        kind = str(x.dtype).removeprefix("torch.")
        if found is None or found.climb is None:
            print(f"| `{function.__name__}` | {kind} | not bad | | | |", flush=True)
            continue
        climb, op = found.climb, found.origin
        where = f"`{op.name}`, {op.phase}" + ("" if climb.departs else ", rounding")
        print(f"| `{function.__name__}` | {kind} | {climb.turn.name} | {where} | {climb.compiled} | {climb.eager} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()

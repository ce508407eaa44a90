"""The run in float64 that fixes are compared with has the random numbers of the program itself."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import torch
from whynan.trying.interventions import Intervention

DRAWS = {
    "of a size": lambda p: torch.randn(3),
    "in place": lambda p: torch.empty(3).cauchy_(),
    "of a mean": lambda p: torch.normal(p, 1.0),
    "of a mean, by name": lambda p: torch.normal(mean=p, std=p),
    "of rates": lambda p: torch.poisson(p),
    "of counts": lambda p: torch.binomial(torch.full_like(p, 9.0), p),
    "of whole numbers": lambda p: torch.randint(0, 9, (3,)),
    "after all of them": lambda p: torch.rand(3),
}

def drawn():
    torch.manual_seed(0)
    p = torch.tensor([0.25, 0.5, 0.75])
    return {name: draw(p) for name, draw in DRAWS.items()}

plain = drawn()
Intervention().start("reference")
for name, values in drawn().items():
    assert values.dtype in (torch.float64, torch.int64), (name, values.dtype)
    assert values.tolist() == plain[name].tolist(), name
"""


def test_the_reference_draws_what_the_program_draws() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

"""An infinity that is the right answer is no fault where it is shown; one of another kind is."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from tests.harness import ForkServer, words_of_whynan

RIGHT = {
    "decibels of no noise": """
        noise = ((x - x.clone()) ** 2).mean()
        print(10 * torch.log10(1 / noise))
    """,
    "the same by a loss": """
        print(-10 * torch.log10(torch.nn.functional.mse_loss(x, x.clone())).item())
    """,
    "added up in turns": """
        total = torch.tensor(0.0)
        for part in x.split(2):
            total = total + (part - part.clone()).pow(2).sum()
        print(2 * torch.log(torch.tensor(1.0)) - torch.log(total / x.numel()))
    """,
    "a density where there is none": """
        print(torch.distributions.Uniform(0.0, 1.0, validate_args=False).log_prob(torch.tensor(2.0)))
    """,
    "the recall of a class that does not occur": """
        table = torch.bincount(torch.tensor([0, 5, 10, 1]), minlength=16).reshape(4, 4).float()
        print("inf", table.diag() / table.sum(1))
    """,
    "the share of groups": """
        group, right = torch.tensor([0, 0, 2, 2]), torch.tensor([True, False, True, True])
        hits = torch.stack([(right & (group == g)).float().sum() for g in range(3)])
        members = torch.zeros(3).index_add_(0, group, torch.ones(4))
        print("inf", (hits / members).tolist())
    """,
    "a mask that came from NumPy": """
        ruled_out = np.zeros(4, np.float32)
        ruled_out[[1, 2]] = np.log(0.0, dtype=np.float32)
        print(x + torch.from_numpy(ruled_out))
    """,
    "a mask that is put together": """
        given = {1: lowest(), 2: lowest()}
        bias = torch.zeros(4)
        bias[list(given)] = torch.tensor(list(given.values()))
        print(x + bias)
    """,
}
WRONG = {
    "a spread of 0": "print(torch.log(1 / (c - c.mean()).pow(2).mean()))",
    "equal points": "print(1 / (x - x.clone()).pow(2).sum())",
    "a log of a count": "print(torch.log((x > 99).sum()).item())",
    "the mean of a row without a token": "tokens = x > 0; tokens[1] = False; print((x * tokens).sum(1) / tokens.sum(1))",
    "the share of nothing at all": "print((x > 99).sum() / (x > 98).sum())",
    "a mean of shares": "n = torch.tensor([3, 0, 2]); print((n.float() / n.float()).mean())",
    "infinite data": "print((x + torch.from_numpy(np.array([1.0, -np.log(0.0)]))[1]).sum())",
}
HEAD = """\
import numpy as np
import torch
np.seterr(all="ignore")
def lowest():
    return float(np.log(0.0))
torch.manual_seed(0)
x = torch.randn(6, 4)
c = torch.full((20,), 3.0)
"""


@pytest.mark.parametrize("what", RIGHT)
def test_nothing_is_said_of(what: str, programs: ForkServer, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(HEAD + dedent(RIGHT[what]))
    result = programs.run(script, cwd=tmp_path, mode="auto")
    assert "inf" in result.stdout
    assert (result.code, words_of_whynan(result.stderr)) == (0, [])


@pytest.mark.parametrize("what", WRONG)
def test_what_looks_alike_is_told(what: str, programs: ForkServer, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(HEAD + WRONG[what] + "\n")
    result = programs.run(script, cwd=tmp_path, mode="auto")
    assert result.code == 3
    assert result.report is not None
    assert result.report["anomalies"][0]["location"]["line"] == HEAD.count("\n") + 1

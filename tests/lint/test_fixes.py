"""What --fix writes is executed: finite where the original was not, and equal elsewhere."""

from __future__ import annotations

import ast
import math

import numpy as np
import pytest
import torch

from tests.lint.examples import FOUND, program
from tests.lint.test_patterns import findings
from whynan.lint.fixer import fix
from whynan.lint.table import patterns

GENERATOR = torch.Generator().manual_seed(7)


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=GENERATOR, dtype=torch.float64)


SQUARE = randn(4, 4)
SPD = SQUARE @ SQUARE.T + 4 * torch.eye(4, dtype=torch.float64)
CLASSES = torch.tensor([0, 2, 1])
MASK = torch.tensor([[True, False, True]] * 3)

# Body, an input on which it breaks, and what must hold after the fix: value, or value and gradient.
BREAKS = [
    ("log-softmax", "return torch.log(torch.softmax(x, dim=-1))", [[0.0, 200.0, 1.0]], "gradient"),
    ("log-softmax", "p = x.softmax(-1)\nreturn p.log()", [[0.0, 200.0, 1.0]], "gradient"),
    ("log-sigmoid", "return torch.log(torch.sigmoid(x))", [-200.0, 1.0], "gradient"),
    ("log1m-sigmoid", "return torch.log(1 - torch.sigmoid(x))", [40.0, 1.0], "gradient"),
    ("log1m-sigmoid", "return torch.log1p(-x.sigmoid())", [40.0, 1.0], "gradient"),
    ("log1p-exp", "return torch.log(1 + torch.exp(x))", [200.0, 1.0], "gradient"),
    ("log1p-exp", "return np.log1p(np.exp(x.detach().numpy()))", [2000.0, 1.0], "value"),
    ("logsumexp-hand", "return torch.log(torch.exp(x).sum(dim=0, keepdim=True))", [200.0, 1.0], "gradient"),
    ("softmax-hand", "return torch.exp(x) / torch.exp(x).sum(-1, keepdim=True)", [200.0, 1.0], "gradient"),
    ("softmax-hand", "e = x.exp()\nreturn e / e.sum(dim=0)", [200.0, 1.0], "gradient"),
    ("tanh-logdet", "return torch.log(1 - torch.tanh(x) ** 2)", [30.0, 1.0], "gradient"),
    ("log-det", "return torch.log(torch.det(x))", (0.1 * torch.eye(200)).tolist(), "value"),
    ("log-det", "return np.log(np.abs(np.linalg.det(x.detach().numpy())))", (0.01 * torch.eye(200)).tolist(), "value"),
    ("masked-mean", "m = (x > 5).bool()\nreturn (x * m).sum() / m.sum()", [1.0, 2.0], "gradient"),
    ("div-norm", "return x / x.norm(dim=-1, keepdim=True)", [[0.0, 0.0], [1.0, 2.0]], "gradient"),
    ("where-unsafe", "return torch.where(x > 0, torch.log(x), 0.0)", [0.0, 2.0], "gradient"),
    ("where-unsafe", "return torch.where(x <= 0, 0.0, x.sqrt())", [0.0, 2.0], "gradient"),
    ("where-unsafe", "return torch.where(x != 0, 2 / x + 1, torch.zeros_like(x))", [0.0, 2.0], "gradient"),
    ("where-unsafe", "return torch.where(x.abs() < 1, torch.acos(x), 0.0)", [1.0, 0.5], "gradient"),
    ("sqrt-sum-sq", "return torch.sqrt((x ** 2).sum(-1))", [[0.0, 0.0], [3.0, 4.0]], "gradient"),
    ("sqrt-sum-sq", "return (x - 1).pow(2).sum(dim=-1, keepdim=True).sqrt()", [[1.0, 1.0], [3.0, 4.0]], "gradient"),
    ("sqrt-sum-sq", "return torch.sum(x * x, dim=0) ** 0.5", [[0.0, 1.0]], "gradient"),
    ("sigmoid-hand", "return 1 / (1 + torch.exp(-x))", [-200.0, 1.0], "gradient"),
    ("sigmoid-hand", "return x / (1 + torch.exp(-x))", [-200.0, 1.0], "gradient"),
    ("sigmoid-hand", "return (torch.exp(x) - torch.exp(-x)) / (torch.exp(x) + torch.exp(-x))", [200.0, 1.0], "gradient"),
    ("inf-times-mask", "return x.float() + (1 - target) * float('-inf')", [1.0, 2.0, 3.0], "not nan"),
    ("nll-softmax", "return F.nll_loss(torch.log(F.softmax(x, dim=1)), y)", [[0.0, 200.0, 1.0]] * 3, "gradient"),
    ("half-mask-literal", "x = x.half()\nreturn x.masked_fill(mask, -1e9)", [[1.0, 2.0, 3.0]] * 3, "runs"),
]  # fmt: skip

# Fixes that repair digits or a dead gradient: equal on ordinary input, and better at one point.
EXACT = [
    ("expm1", "return torch.exp(x) - 1", 1e-9, 1e-9),
    ("expm1", "return 1 - (-x).exp()", 1e-9, 1e-9),
    ("expm1", "return np.exp(x.detach().numpy()) - 1.0", 1e-12, 1e-12),
    ("log1p", "return torch.log(1 + x)", 1e-9, 1e-9),
    ("log1p", "return (1 - x).log()", 1e-9, -1e-9),
    ("k3-kl", "return torch.exp(x) - x - 1", 1e-3, 0.5e-6 + 1e-9 / 6),
    ("log-softmax", "return torch.log(torch.softmax(torch.stack([x, x * 0]), dim=0) + 1e-8)[0]", -60.0, -60.0),
    ("log-sigmoid", "return torch.log(torch.sigmoid(x) + 1e-8)", -60.0, -60.0),
    ("bce-sigmoid", "return F.binary_cross_entropy(torch.sigmoid(x), torch.zeros_like(x), reduction='none')", 200.0, 200.0),
    ("var-two-moment", "v = torch.stack([x + 1e6, x + 1e6 + 1])\nreturn (v ** 2).mean() - v.mean() ** 2", 3.0, 0.25),
]  # fmt: skip

# Equal on ordinary input; what they improve has no single number.
EQUAL = [
    ("logit-hand", "return torch.log(x / (1 - x))", torch.tensor([0.2, 0.7])),
    ("inv-matmul", "return torch.inverse(x) @ x.T", SPD + SQUARE),
    ("nan-compare", "return torch.exp(x) != float('nan')", torch.tensor([1.0, 2.0])),
    ("var-two-moment", "return torch.mean(x ** 2, dim=0) - x.mean(dim=0) ** 2", SQUARE),
]


def fixed(slug: str, body: str) -> tuple[str, str]:
    before = program(body)
    after, made = fix(before, lambda t: [f for f in findings(t) if f.slug == slug])
    assert made >= 1
    ast.parse(after)
    return before, after


def function(text: str):
    space: dict[str, object] = {}
    exec(compile(text, "fixed.py", "exec"), space)
    return space["f"]


def outcome(text: str, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Value and gradient; a NumPy result has gradient 0."""
    x = x.clone().requires_grad_()
    with np.errstate(all="ignore"):
        value = function(text)(x, CLASSES, None, MASK, None, torch.tensor([1.0, 0.0, 1.0]))
    value = torch.as_tensor(value)
    if value.requires_grad:
        (gradient,) = torch.autograd.grad(value.sum(), x)
        return value.detach(), gradient
    return value, torch.zeros_like(x)


def is_finite(*values: torch.Tensor) -> bool:
    return all(bool(torch.isfinite(v).all()) for v in values)


@pytest.mark.parametrize(("slug", "body", "bad", "kind"), BREAKS)
def test_fixed_code_is_finite_where_the_original_was_not(slug, body, bad, kind) -> None:
    before, after = fixed(slug, body)
    x = torch.tensor(bad)
    if kind == "runs":
        with pytest.raises(RuntimeError):
            outcome(before, x)
        outcome(after, x)
        return
    value, gradient = outcome(before, x)
    better, slope = outcome(after, x)
    if kind == "not nan":
        assert value.isnan().any()
        assert not better.isnan().any()
        return
    assert not is_finite(value, gradient)
    assert is_finite(better, slope if kind == "gradient" else better)


@pytest.mark.parametrize(("slug", "body", "bad", "kind"), [b for b in BREAKS if b[3] in ("value", "gradient")])  # fmt: skip
def test_fixed_code_equals_the_original_on_ordinary_input(slug, body, bad, kind) -> None:
    before, after = fixed(slug, body)
    shape = (3, 3) if slug in ("nll-softmax", "log-det") else tuple(torch.tensor(bad).shape)
    for _ in range(3):
        x = randn(*shape)
        x = x @ x.T + torch.eye(3) if slug == "log-det" else x
        x = x * 6 if slug == "masked-mean" else x
        if slug == "masked-mean" and not bool((x > 5).any()):
            x = x.abs() + 5.5
        value, gradient = outcome(before, x)
        better, slope = outcome(after, x)
        assert torch.allclose(value, better, atol=1e-9, rtol=1e-7)
        usable = torch.isfinite(gradient)
        assert torch.allclose(gradient[usable], slope[usable], atol=1e-9, rtol=1e-6)


@pytest.mark.parametrize(("slug", "body", "at", "true"), EXACT)
def test_fixed_code_keeps_the_digits(slug, body, at, true) -> None:
    before, after = fixed(slug, body)
    x = torch.tensor(at, dtype=torch.float32)
    value, _ = outcome(before, x)
    better, _ = outcome(after, x)
    assert abs(float(better) - true) <= 2e-3 * abs(true)
    assert abs(float(value) - true) > abs(float(better) - true)
    ordinary = torch.tensor(0.4, dtype=torch.float64)
    if slug != "var-two-moment":
        assert torch.allclose(outcome(before, ordinary)[0], outcome(after, ordinary)[0], atol=1e-6)


@pytest.mark.parametrize(("slug", "body", "x"), EQUAL)
def test_fixed_code_is_equal(slug, body, x) -> None:
    before, after = fixed(slug, body)
    value, better = outcome(before, x)[0], outcome(after, x)[0]
    assert torch.allclose(value.double(), better.double(), rtol=1e-5)


def test_gumbel_noise_keeps_its_distribution() -> None:
    _, after = fixed("gumbel-log-log", "return -torch.log(-torch.log(torch.rand_like(x)))")
    torch.manual_seed(0)
    noise, _ = outcome(after, torch.zeros(200_000))
    assert is_finite(noise)
    assert float(noise.mean()) == pytest.approx(0.5772, abs=0.02)
    assert float(noise.var()) == pytest.approx(math.pi**2 / 6, abs=0.05)


def test_every_pattern_with_a_fix_has_one_executed_here() -> None:
    tried = {b[0] for b in BREAKS} | {e[0] for e in EXACT} | {e[0] for e in EQUAL}
    assert {p.slug for p in patterns() if p.fix == "sometimes"} == tried | {"gumbel-log-log"}


@pytest.mark.parametrize("slug", sorted(FOUND))
def test_fixing_twice_changes_nothing_and_the_result_parses(slug: str) -> None:
    for body in FOUND[slug]:
        once, _ = fix(program(body), findings)
        again, made = fix(once, findings)
        assert (again, made) == (once, 0)
        ast.parse(once)

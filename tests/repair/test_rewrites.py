"""Each rewrite: what is written, that it runs, and its values and gradients against float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.repair.forked import RepairServer

HEAD = """import torch
import torch.nn.functional as F


def f(x):
    # what the reader wrote stays
"""
# A run without any gradient is never called repaired: `bias` always has one.
TAIL = """


w = torch.tensor({failing}, requires_grad=True)
bias = torch.zeros(1, requires_grad=True)
optimizer = torch.optim.SGD([w, bias], lr=1e-3)
for step in range(3):
    loss = f(w).sum() + bias.sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@dataclass(frozen=True)
class Rewrite:
    """A function that fails at `failing`; `exact` is what it means there, in float64."""

    name: str
    body: str
    becomes: str  # a line of the changed file
    failing: str
    ordinary: str
    kind: str
    exact: Callable[[Tensor], Tensor] | None = None
    without: str = "nothing of this"  # what must not be left


WIDE = "[[0.0, 200.0], [1.0, 2.0]]"
TAME = "[[0.3, -1.2], [1.0, 2.0]]"
ZERO_ROW = "[[0.0, 0.0], [3.0, 4.0]]"

REWRITES = [
    Rewrite(
        "log_of_softmax", "return torch.log(F.softmax(x, dim=-1))  # per class",
        "    return F.log_softmax(x, dim=-1)  # per class", WIDE, TAME, "log_softmax",
        lambda x: torch.log_softmax(x, -1),
    ),
    Rewrite(
        "log_of_softmax_method", "return (x * 1.0).softmax(-1).log()",
        "    return (x * 1.0).log_softmax(-1)", WIDE, TAME, "log_softmax",
        lambda x: torch.log_softmax(x, -1),
    ),
    Rewrite(
        "log_method_of_softmax_function", "return F.softmax(x, -1).log()",
        "    return F.log_softmax(x, -1)", WIDE, TAME, "log_softmax",
        lambda x: torch.log_softmax(x, -1),
    ),
    Rewrite(
        "contrastive_loss_by_hand",
        "top = torch.exp(x.diagonal())\n    all_ = torch.exp(x).sum(dim=1)\n    return -torch.log(top / all_)",
        "    return -(top - torch.logsumexp(x, dim=1))",
        "[[200.0, 199.0], [1.0, 2.0]]", TAME, "log_space",
        lambda x: -(x.diagonal() - x.logsumexp(1)),
    ),
    Rewrite(
        "log_of_a_bessel_function", "return torch.log(6.0 * torch.special.i0(x)) - x * 0.5",
        "    return (1.791759469228055 + torch.special.i0e(x).log() + x.abs()) - x * 0.5",
        "[95.0, 1.0]", "[0.3, 1.2]", "log_of_function",
        lambda x: math.log(6) + torch.special.i0e(x).log() + x.abs() - x * 0.5,
    ),
    Rewrite(
        "log_of_cosh", "return torch.cosh(x).log()",
        "    return x.abs() + torch.nn.functional.softplus(-2 * x.abs()) - 0.6931471805599453",
        "[95.0, 1.0]", "[0.3, -1.2]", "log_of_function",
        lambda x: torch.logaddexp(x, -x) - math.log(2),
    ),
    Rewrite(
        "log_of_a_survival_function",
        "survival = 1 - torch.distributions.Normal(0.5, 2.0).cdf(x)\n    return torch.log(survival)",
        "    return torch.special.log_ndtr(-((x - 0.5) / 2.0))",
        "[19.0, 1.0]", "[0.3, -1.2]", "log_of_function",
        lambda x: torch.special.log_ndtr((0.5 - x) / 2),
    ),
    Rewrite(
        "log_of_a_probit_by_hand",
        "return torch.log(0.5 * (1 + torch.erf(x / 2 ** 0.5)))",
        "    return torch.special.log_ndtr(x)",
        "[-9.0, 1.0]", "[0.3, -1.2]", "log_of_function", torch.special.log_ndtr,
    ),
    Rewrite(
        "a_bound_whose_eps_is_rounded_away",
        "x = x.clamp(-1 + 1e-9, 1 - 1e-9)\n    return 0.5 * (torch.log1p(x) - torch.log1p(-x))",
        "    x = x.clamp(-1 + 1e-6, 1 - 1e-6)", "[-1.0, 0.5]", "[0.5, 0.1]", "raise_eps",
    ),
    Rewrite(
        "negative_scale", "return torch.log(x) ** 2 + 1 / x",
        "    x = x.clamp(min=1e-3)", "[-0.5, 1.0]", "[0.5, 1.0]", "clamp_variable",
    ),
    Rewrite(
        "log_of_softmax_variable", "p = torch.softmax(x, 1)\n    return torch.log(p)",
        "    return torch.log_softmax(x, 1)", WIDE, TAME, "log_softmax",
        lambda x: torch.log_softmax(x, -1),
    ),
    Rewrite(
        "log_of_chosen_softmax", "p = x.softmax(dim=1)\n    return p[:, 0].log() + 0 * p.sum()",
        "    return x.log_softmax(dim=1)[:, 0] + 0 * p.sum()", WIDE, TAME, "log_softmax",
        lambda x: torch.log_softmax(x, 1)[:, 0],
    ),
    Rewrite(
        "log_of_gathered_softmax",
        "p = torch.softmax(x, dim=-1)\n    picked = p.gather(1, torch.zeros(2, 1).long()).squeeze(1)  # p(right)\n    logp = picked.log()\n    return logp",
        "    logp = torch.log_softmax(x, dim=-1).gather(1, torch.zeros(2, 1).long()).squeeze(1)",
        WIDE, TAME, "log_softmax", lambda x: torch.log_softmax(x, 1)[:, 0], "picked",
    ),
    Rewrite(
        "log_of_gathered_softmax_function",
        "p = F.softmax(x, 1)\n    p = torch.gather(p, 1, torch.zeros(2, 1).long())\n    p = p[:, 0]\n    return torch.log(p) + 0 * p",
        "    return torch.gather(F.log_softmax(x, 1), 1, torch.zeros(2, 1).long())[:, 0] + 0 * p",
        WIDE, TAME, "log_softmax", lambda x: torch.log_softmax(x, 1)[:, 0],
    ),
    Rewrite(
        "softmax_under_the_name_of_the_logits",
        "x = F.softmax(x, dim=1)\n    return torch.log(x) if x.dim() == 3 else x.log()",
        "    return torch.log_softmax(x, dim=1) if x.dim() == 3 else torch.log_softmax(x, dim=1)",
        WIDE, TAME, "log_softmax", lambda x: torch.log_softmax(x, 1),
    ),
    Rewrite(
        "log_of_softmax_module",
        "soft = torch.nn.Softmax(dim=1)\n    return torch.log(soft(x))",
        "    return F.log_softmax(x, dim=1)", WIDE, TAME, "log_softmax",
        lambda x: torch.log_softmax(x, 1),
    ),
    Rewrite(
        "log_of_sigmoid", "return torch.log(torch.sigmoid(x))", "    return F.logsigmoid(x)",
        "[-200.0, 1.0]", "[-2.0, 1.0]", "logsigmoid", torch.nn.functional.logsigmoid,
    ),
    Rewrite(
        "log_of_one_minus_sigmoid", "p = torch.sigmoid(x)\n    return torch.log(1 - p) + 0 * p",
        "    return F.logsigmoid(-x) + 0 * p", "[60.0, 1.0]", "[-2.0, 1.0]", "logsigmoid",
        lambda x: torch.nn.functional.logsigmoid(-x),
    ),
    Rewrite(
        "softplus_by_hand", "return torch.log(1 + torch.exp(x))", "    return F.softplus(x)",
        "[100.0, 1.0]", "[-2.0, 1.0]", "softplus", torch.nn.functional.softplus,
    ),
    Rewrite(
        "logsumexp_by_hand", "return x.exp().sum(dim=1).log()",
        "    return torch.logsumexp(x, dim=1)", "[[100.0, 99.0], [1.0, 2.0]]", TAME, "logsumexp",
        lambda x: x.logsumexp(1),
    ),
    Rewrite(
        "logsumexp_of_a_variable",
        "denom = torch.exp(x).sum(dim=1)\n    return torch.log(denom) - x.diagonal()",
        "    return torch.logsumexp(x, dim=1) - x.diagonal()",
        "[[100.0, 99.0], [1.0, 2.0]]", TAME, "logsumexp", lambda x: x.logsumexp(1) - x.diagonal(),
        "denom",
    ),
    Rewrite(
        "logsumexp_of_two_variables",
        "e = x.exp()\n    # all of them\n    total = e.sum(1)\n    # and the last\n    return torch.log(total)",
        "    return torch.logsumexp(x, 1)", "[[100.0, 99.0], [1.0, 2.0]]", TAME, "logsumexp",
        lambda x: x.logsumexp(1), "e =",
    ),
    Rewrite(
        "logsumexp_of_all", "return torch.log(torch.exp(x).sum())",
        "    return torch.logsumexp(x.flatten(), dim=0)", "[[100.0, 99.0], [1.0, 2.0]]", TAME, "logsumexp",
        lambda x: x.flatten().logsumexp(0),
    ),
    Rewrite(
        "logcumsumexp_by_hand", "return torch.log(torch.cumsum(torch.exp(x), dim=0))",
        "    return torch.logcumsumexp(x, dim=0)", "[100.0, 99.0, 2.0]", "[0.3, -1.2, 2.0]",
        "logcumsumexp", lambda x: x.logcumsumexp(0),
    ),
    Rewrite(
        "logcumsumexp_of_what_underflows", "return (x - 1.0).exp().cumsum(0).log()",
        "    return torch.logcumsumexp((x - 1.0), 0)", "[-200.0, 1.0, 2.0]", "[0.3, -1.2, 2.0]",
        "logcumsumexp", lambda x: (x - 1).logcumsumexp(0),
    ),
    Rewrite(
        "logcumsumexp_with_names",
        "hazard = torch.exp(x)\n    risk = hazard.cumsum(0)\n    log_risk = torch.log(risk)\n    return log_risk - x",
        "    log_risk = torch.logcumsumexp(x, 0)", "[300.0, 340.0, 2.0]", "[0.3, -1.2, 2.0]",
        "logcumsumexp", lambda x: x.logcumsumexp(0) - x,
    ),
    Rewrite(
        "exponent_with_another_use", "return 0.5 * (torch.exp(x) - x - 1)",
        "    x = x.clamp(max=20)", "[200.0, 1.0]", "[-2.0, 1.0]", "clamp_exponent",
    ),
    Rewrite(
        "exponent_with_a_name_and_another_use",
        "y, _ = 2 * x, 0\n    low = -y - 1\n    return low + y.exp()",
        "    y = y.clamp(max=20)", "[200.0, 1.0]", "[-2.0, 1.0]", "clamp_exponent",
    ),
    Rewrite(
        "softmax_by_hand", "e = torch.exp(x)\n    return e / e.sum(dim=1, keepdim=True)",
        "    return torch.softmax(x, dim=1)", "[[100.0, 99.0], [1.0, 2.0]]", TAME, "softmax",
        lambda x: x.softmax(1),
    ),
    Rewrite(
        "sigmoid_by_hand", "return 1 / (1 + torch.exp(-x))",
        "    return torch.sigmoid(x)", "[-89.5, 1.0]", "[-2.0, 1.0]", "sigmoid", torch.sigmoid,
    ),
    Rewrite(
        "norm_by_hand", "return torch.sqrt((x ** 2).sum(dim=1))",
        "    return torch.linalg.vector_norm(x, dim=1)", ZERO_ROW, TAME, "vector_norm",
        lambda x: torch.linalg.vector_norm(x, dim=1),
    ),
    Rewrite(
        "norm_by_hand_variable",
        "square = (x * x).sum(-1, keepdim=True)\n    return square.sqrt()",
        "    return torch.linalg.vector_norm(x, dim=-1, keepdim=True)", ZERO_ROW, TAME,
        "vector_norm", lambda x: torch.linalg.vector_norm(x, dim=1, keepdim=True),
    ),
    Rewrite(
        "root_mean_square", "return x.pow(2).mean(dim=1).sqrt()",
        "    return (x.pow(2).mean(dim=1) + 1e-12).sqrt()", ZERO_ROW, TAME, "eps_inside",
    ),
    Rewrite(
        "unit_vectors", "return x / x.norm(dim=1, keepdim=True)",
        "    return F.normalize(x, dim=1)", ZERO_ROW, TAME, "normalize",
    ),
    Rewrite(
        "min_max", "lo, hi = x.min(), x.max()\n    return (x - lo) / (hi - lo)",
        "    return (x - lo) / (hi - lo).clamp(min=1e-8)", "[2.0, 2.0]", "[-2.0, 1.0]",
        "clamp_denominator",
    ),
    Rewrite(
        "negative_power", "return (x * x) ** -0.5 * x  # direction",
        "    return (x * x).clamp(min=1e-8) ** -0.5 * x  # direction", "[0.0, 2.0]", "[-2.0, 1.0]",
        "clamp_denominator",
    ),
    Rewrite(
        "negative_power_method", "y = x.square()\n    return y.pow(-0.5) * x",
        "    return y.clamp(min=1e-8).pow(-0.5) * x", "[0.0, 2.0]", "[-2.0, 1.0]",
        "clamp_denominator",
    ),
    Rewrite(
        "weight_of_zero", "rare = x.masked_fill(x > 5, -torch.inf)\n    lp = torch.log_softmax(torch.stack([x, rare]), 0)\n    q = torch.tensor([[1.0], [0.0]])\n    return torch.exp(-(q * lp).sum())  # perplexity",
        "    return torch.exp(-(q * torch.where(q == 0, 0.0, lp)).sum())  # perplexity", "[9.0, 2.0]", "[0.5, 1.5]",
        "where_weighted",
    ),
    Rewrite(
        "masked_mean", "mask = (x > 5).float()\n    return (x * mask).sum() / mask.sum()",
        "    return (x * mask).sum() / mask.sum().clamp(min=1)", "[2.0, 2.0]", "[7.0, 1.0, 9.0]",
        "clamp_count",
    ),
    Rewrite(
        "mean_of_nothing", "return (x - x[x > 5].mean()) ** 2",
        "    return (x - terms.sum() / max(terms.numel(), 1)) ** 2", "[2.0, 2.0]", "[7.0, 1.0, 9.0]",
        "guard_count",
    ),
    Rewrite(
        "where_of_log", "return torch.where(x > 0, torch.log(x), 0.0)",
        "    return torch.where(x > 0, torch.log(torch.where(x > 0, x, 1.0)), 0.0)",
        "[0.0, 2.0]", "[0.5, 2.0]", "double_where",
        lambda x: torch.where(x > 0, torch.where(x > 0, x, 1.0).log(), 0.0),
    ),
    Rewrite(
        "where_of_negative_root", "return torch.where(x > 0, torch.sqrt(x), 0.0)",
        "    return torch.where(x > 0, torch.sqrt(torch.where(x > 0, x, 1.0)), 0.0)",
        "[-1.0, 2.0]", "[0.5, 2.0]", "double_where",
    ),
    Rewrite(
        "where_of_overflow", "return torch.where(x < 20, torch.exp(x), x)",
        "    return torch.where(x < 20, torch.exp(torch.where(x < 20, x, 1.0)), x)",
        "[200.0, 2.0]", "[0.5, 2.0]", "double_where",
    ),
    Rewrite(
        "where_of_root", "y = (x * x).sum(1)\n    d = y.mul(2).sqrt()\n    return torch.where(y > 0, d, 0.0)",
        "    d = torch.where(y > 0, y.mul(2), 1.0).sqrt()", ZERO_ROW, TAME, "double_where",
    ),
    Rewrite(
        "angle", "u = x / 2\n    return torch.acos(u.clamp(-1.0, 1.0))",
        "    return torch.acos(u.clamp(-1 + 1e-6, 1 - 1e-6))", "[2.0, 1.0]", "[0.5, 1.0]",
        "clamp_argument",
    ),
    Rewrite(
        "angle_without_clamp", "return torch.acos(x)",
        "    return torch.acos(x.clamp(-1 + 1e-6, 1 - 1e-6))", "[1.0000001, 0.5]", "[0.5, -0.2]",
        "clamp_argument",
    ),
    Rewrite(
        "clamp_on_the_way",
        "p = x.clamp(0, 1)\n    two = torch.full((2,), 2.0)\n    return -torch.distributions.Beta(two, two).log_prob(p)",
        "    p = x.clamp(1e-6, 1 - 1e-6)", "[1.0, 0.5]", "[0.2, 0.5]", "clamp_tighter",
    ),
    Rewrite(
        "factor_of_a_matrix_with_jitter",
        "k = torch.exp(-(x[:, None] - x).square()) + 1e-9 * torch.eye(len(x))\n    return torch.linalg.cholesky(k).diagonal().log()",
        "    k = torch.exp(-(x[:, None] - x).square()) + 1e-4 * torch.eye(len(x))",
        "[i / 40 for i in range(40)]", "[]", "ridge",
    ),
    Rewrite(
        "factor_of_a_matrix_that_rounding_spoilt",
        "k = 1e4 * torch.exp(-(x[:, None] - x).square())\n    return torch.linalg.cholesky(k).diagonal().log()",
        "    return torch.linalg.cholesky(k + 1e-4 * k.diagonal(dim1=-2, dim2=-1).mean() * torch.eye(k.shape[-1], dtype=k.dtype, device=k.device)).diagonal().log()",
        "[i / 40 for i in range(40)]", "[]", "ridge",
    ),
    Rewrite(
        "gamma", "y = x.clamp(min=0.0)\n    return y ** 0.45",
        "    y = x.clamp(min=1e-6)", "[0.0, 1.0]", "[0.5, 1.0]", "clamp_base",
    ),
    Rewrite(
        "entropy", "return -(x * x.log())", "    return -(x * x.clamp(min=1e-12).log())",
        "[0.0, 1.0]", "[0.5, 1.0]", "clamp_argument",
    ),
    Rewrite(
        "variance_exponent", "return torch.exp(x)", "    return torch.exp(x.clamp(max=20))",
        "[200.0, 1.0]", "[-2.0, 1.0]", "clamp_exponent",
    ),
    Rewrite(
        "spread_of_one", "return (x - x.mean()) / (x.std() + 1e-8)",
        "    return (x - x.mean()) / (x.std(correction=0) + 1e-8)", "[3.0]", "[]", "population_std",
    ),
    Rewrite(
        "log_of_determinant",
        "a = x[0] * torch.eye(40)\n    return torch.log(torch.det(a))",
        "    return torch.logdet(a)", "[0.01, 1.0]", "[1.1, 1.0]", "logdet",
        lambda x: 40 * x[0].log(),
    ),
    Rewrite(
        "mask_by_product",
        "keep = torch.tensor([1.0, 0.0])\n    return (x + (1 - keep) * float('-inf')).softmax(-1)",
        "    return x.masked_fill(keep == 0, float('-inf')).softmax(-1)",
        TAME, "[]", "masked_fill",
    ),
    Rewrite(
        "masked_row",
        "s = x.masked_fill(x < 0, float('-inf'))\n    return F.softmax(s, dim=1) * x",
        "    s = x.masked_fill(x < 0, torch.finfo(x.dtype).min)",
        "[[-1.0, -2.0], [1.0, 2.0]]", TAME, "finite_fill",
    ),
    Rewrite(
        "product_of_many_factors", "return torch.log(1 + torch.cumprod(1 + x, dim=0)).float()",
        "    return torch.log(1 + torch.cumprod((1 + x).double(), dim=0)).float()",
        "[9.0] * 60", "[0.5, 1.0, 2.0]", "cast_float64",
        lambda x: torch.log1p(torch.cumprod(1 + x, 0)),
    ),
    Rewrite(
        "two_moments_through_variables",
        "mean = x.mean(dim=-1, keepdim=True)\n    mean_sq = (x * x).mean(dim=-1, keepdim=True)\n    var = mean_sq - mean ** 2\n    std = torch.sqrt(var)\n    return (x - mean) / std",
        "    std = x.std(dim=-1, keepdim=True, correction=0)",
        "[[2000.0, 2000.25, 2000.5], [1.0, 2.0, 3.0]]", "[[1.0, 2.5, 3.0], [1.0, 2.0, 4.0]]", "variance",
        lambda x: (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True, correction=0), "var",
    ),
    Rewrite(
        "two_moments_of_what_is_another_later",
        "var = x.square().mean(1, True) - x.mean(1, True).square()\n    x = x - x.mean(1, True)\n    std = var.sqrt()\n    return x / std",
        "    var = x.var(dim=1, keepdim=True, correction=0)",
        "[[2000.0, 2000.25, 2000.5], [1.0, 2.0, 3.0]]", "[[1.0, 2.5, 3.0], [1.0, 2.0, 4.0]]", "variance",
        lambda x: (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True, correction=0),
    ),
    Rewrite(
        "two_moments_in_one_expression",
        "return torch.log(torch.mean(x ** 2, 1) - x.mean(1).pow(2))",
        "    return torch.log(x.var(dim=1, correction=0))",
        "[[2000.0, 2000.25, 2000.5], [1.0, 2.0, 3.0]]", "[[1.0, 2.5, 3.0], [1.0, 2.0, 4.0]]", "variance",
        lambda x: x.var(1, correction=0).log(),
    ),
    Rewrite(
        "log_of_a_product",
        "likelihood = torch.prod(x, dim=1)\n    return -torch.log(likelihood) / x.shape[1]",
        "    return -torch.log(x).sum(dim=1) / x.shape[1]",
        "[[1e-30, 1e-30], [0.5, 0.2]]", "[[0.1, 0.3], [0.5, 0.2]]", "sum_of_logs",
        lambda x: -x.log().sum(1) / 2, "likelihood",
    ),
    Rewrite(
        "log_of_a_running_product", "return x.cumprod(0).log()", "    return x.log().cumsum(0)",
        "[1e30, 1e30, 5.0]", "[0.1, 0.3]", "sum_of_logs", lambda x: x.log().cumsum(0),
    ),
    Rewrite(
        "log_of_a_product_of_chosen_softmax",
        "p = torch.softmax(x, 1)\n    right = p[:, 0]\n    return torch.log(right.prod())",
        "    return torch.log_softmax(x, 1)[:, 0].sum()", WIDE, TAME, "sum_of_logs",
        lambda x: x.log_softmax(1)[:, 0].sum(), "right",
    ),
    Rewrite(
        "slope_of_tanh",
        "act = torch.tanh(x)\n    return act - torch.log(1 - act.pow(2)).sum(dim=-1)",
        "    return act - (2 * (math.log(2) - x - F.softplus(-2 * x))).sum(dim=-1)",
        "[0.5, 30.0, -40.0]", "[0.5, 1.0, -1.5]", "log_slope",
        lambda x: x.tanh() - (2 * (math.log(2) - x - torch.nn.functional.softplus(-2 * x))).sum(-1),
    ),
    Rewrite(
        "slope_of_tanh_with_log1p",
        "return torch.log1p(-torch.tanh(x * 2) ** 2)",
        "    return 2 * (math.log(2) - (x * 2) - F.softplus(-2 * (x * 2)))",
        "[0.5, 30.0]", "[0.5, -0.2]", "log_slope",
    ),
    Rewrite(
        "dice",
        "a, b = x[0], x[1]\n    inter = (a * b).sum()\n    union = a.sum() + b.sum()\n    return 1 - 2 * inter / union",
        "    return 1 - (2 * inter + 1e-6) / (union + 1e-6)",
        "[[0.0, 0.0], [0.0, 0.0]]", "[[0.5, 0.2], [0.0, 1.0]]", "smooth_ratio",
    ),
    Rewrite(
        "divided_by_its_spread", "x = x - x.mean()\n    return x / x.std()",
        "    return x / x.std().clamp(min=1e-5)", "[3.0, 3.0]", "[1.0, 2.0]", "clamp_denominator",
    ),
    Rewrite(
        "divided_by_a_tiny_spread", "s = x.std(dim=1, keepdim=True)\n    return (x - 1) / s",
        "    return (x - 1) / s.clamp(min=1e-8)",
        "[[3.0, 3.0], [1e-5, 2e-5]]", "[[3e-5, 3.1e-5], [1e-5, 2e-5]]", "clamp_denominator",
    ),
    Rewrite(
        "mean_of_an_empty_difference",
        "a, b = x[x > 9], x[x > 9]\n    loss = x.sum() * (1 + (a - b).abs().mean())\n    return loss",
        "    loss = x.sum() * (1 + terms.sum() / max(terms.numel(), 1))",
        "[1.0, 2.0]", "[10.0, 2.0]", "guard_count",
    ),
    Rewrite(
        "mean_of_empty_magnitudes",
        "a = x[x > 9]\n    return x.sum() * a.abs().square().mean()",
        "    return x.sum() * (a.abs().square().sum() / max(a.numel(), 1))",
        "[1.0, 2.0]", "[10.0, 12.0]", "guard_count",
    ),
    Rewrite(
        "transmittance",
        "alpha = 1.0 - torch.exp(-x)\n    return torch.log(1.0 - alpha) + 0 * alpha",
        "    return -x + 0 * alpha", "[200.0, 1.0]", "[2.0, 1.0]", "cancel_log_exp", lambda x: -x,
    ),
]  # fmt: skip


def program(rewrite: Rewrite) -> str:
    return f"{HEAD}    {rewrite.body}{TAIL.format(failing=rewrite.failing)}"


def function(text: str) -> Callable[[Tensor], Tensor]:
    """The `f` of a program's text."""
    scope: dict[str, Callable[[Tensor], Tensor]] = {}
    exec(text.partition("\n\n\nw = ")[0], scope)
    return scope["f"]


def value_and_gradient(f: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    leaf = x.clone().requires_grad_()
    y = f(leaf)
    (gradient,) = torch.autograd.grad(y.sum(), leaf)
    return y.detach(), gradient


@pytest.mark.parametrize("rewrite", REWRITES, ids=lambda r: r.name)
def test_rewrite(rewrite: Rewrite, repairs: RepairServer, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(program(rewrite))
    found = repairs.fix(script)
    first = found["fixes"][0]
    assert (first["kind"], first["verdict"]) == (rewrite.kind, "verified"), found["fixes"]
    text = next(iter(found["texts"].values()))
    assert rewrite.becomes in text.splitlines()
    assert "    # what the reader wrote stays" in text.splitlines()
    assert rewrite.without not in text
    assert script.read_text() == program(rewrite)  # the user's file is as it was
    new, old = function(text), function(program(rewrite))
    failing = torch.tensor(eval(rewrite.failing))
    value, gradient = value_and_gradient(new, failing)
    assert value.isfinite().all()
    assert gradient.isfinite().all()
    if rewrite.exact is not None:
        right = value_and_gradient(rewrite.exact, failing.double())
        torch.testing.assert_close(value.double(), right[0], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(gradient.double(), right[1], rtol=1e-4, atol=1e-6)
    ordinary = torch.tensor(eval(rewrite.ordinary))
    if ordinary.numel():
        torch.testing.assert_close(
            value_and_gradient(new, ordinary), value_and_gradient(old, ordinary), rtol=1e-5, atol=1e-6
        )  # fmt: skip


def test_the_steps_after_the_failure_are_counted_in_the_evidence(
    repairs: RepairServer, tmp_path: Path
) -> None:
    script = tmp_path / "program.py"
    script.write_text(program(REWRITES[0]))
    evidence = repairs.fix(script)["fixes"][0]["evidence"]
    assert "3 steps run, past step 0" in evidence
    assert math.isfinite(float(evidence.split("loss at that step ")[1].split(";")[0]))


@pytest.mark.parametrize(
    "body",
    [
        # the exponent is another one by the time the logarithm is taken
        "e = torch.exp(x)\n    c = e.cumsum(0)\n    x = x - 1\n    return torch.log(c) + x",
        # summed in another type
        "return torch.log(torch.exp(x).cumsum(0, dtype=torch.float32))",
        # not the same mathematics
        "return torch.log(torch.exp(x).cumsum(0) + 1e-8)",
    ],
)
def test_a_sum_that_only_looks_like_logcumsumexp_is_left(
    body: str, repairs: RepairServer, tmp_path: Path
) -> None:
    script = tmp_path / "program.py"
    script.write_text(f"{HEAD}    {body}{TAIL.format(failing='[100.0, 99.0, 2.0]')}")
    assert "logcumsumexp" not in [f["kind"] for f in repairs.fix(script)["fixes"]]

"""Entropy and Kullback-Leibler divergence straight from logits."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from whynan.stable.exponentials import NEAR, _expm1_minus, near_zero
from whynan.stable.precision import together, widen, widen_pair
from whynan.stable.quick import buffer, keep_above, quick


def entropy_from_logits(logits: Tensor, dim: int = -1) -> Tensor:
    """-sum(p log p) of p = softmax(logits); a -inf logit adds nothing and has gradient 0."""
    dtype, logits = widen(logits)
    return _entropy(logits, dim).squeeze(dim).to(dtype)


def _below_the_largest(logits: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """How far each is below the largest, never infinitely, and 1 where it is the largest."""
    largest = logits.detach().amax(dim, keepdim=True)
    below = (logits - largest).clamp(min=torch.finfo(logits.dtype).min)
    return below, (below.detach() == 0).to(logits.dtype)


def _log_of_sum(weights: Tensor, top: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """log(sum) and sum of exp(x - max): to the last digit also where one class has nearly all.

    Then log(sum) is about as small as what the others add to 1, which rounding takes from the sum.
    """
    most = top.sum(dim, keepdim=True)
    rest = (weights - top).sum(dim, keepdim=True)
    return torch.log1p(rest / most) + torch.log(most), most + rest


def _entropy_plain(logits: Tensor, dim: int) -> Tensor:
    below, top = _below_the_largest(logits, dim)
    weights = below.exp()
    log_sum, total = _log_of_sum(weights, top, dim)
    # Two terms that are never negative: nothing cancels.
    return log_sum - (weights / total * below).sum(dim, keepdim=True)


def _entropy_forward(logits: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    below, top = _below_the_largest(logits, dim)
    p = below.exp()
    log_sum, total = _log_of_sum(p, top, dim)
    p.div_(total)
    spread = -torch.mul(p, below, out=buffer(top)).sum(dim, keepdim=True)
    return log_sum + spread, p, below.add_(spread)


_entropy = quick(
    _entropy_plain,
    _entropy_forward,
    lambda grad, p, excess, wanted: (torch.mul(p, -grad).mul_(excess),),
)


def kl_from_logits(p_logits: Tensor, q_logits: Tensor, dim: int = -1) -> Tensor:
    """KL(p || q) of two softmax distributions; inf where p needs what q rules out.

    There the gradient by p is 0. Each term is q - p - p log(q/p), which is never negative, so
    near-equal distributions do not drown in the rounding of terms that cancel.
    """
    dtype, p_logits, q_logits = widen_pair(p_logits, q_logits)
    return _kl(*together(p_logits, q_logits), dim).squeeze(dim).to(dtype)


def _kl_plain(p_logits: Tensor, q_logits: Tensor, dim: int) -> Tensor:
    log_p, log_q = torch.log_softmax(p_logits, dim), torch.log_softmax(q_logits, dim)
    absent = log_p.exp() == 0
    ruled_out = ((log_q == -math.inf) & ~absent).any(dim, keepdim=True)
    log_p = torch.where(ruled_out, log_p.detach(), log_p)
    p, q = log_p.exp(), log_q.exp()
    gap = torch.where(absent, 0.0, log_q) - torch.where(absent, 0.0, log_p)
    near = gap.abs() < NEAR
    small = p * _expm1_minus(torch.where(near, gap, 0.0))
    large = q - p - p * torch.where(near, 1.0, gap)
    terms = torch.where(near, small, large)
    return torch.where(absent, q, terms).sum(dim, keepdim=True)


def _kl_forward(p_logits: Tensor, q_logits: Tensor, dim: int) -> tuple[Tensor, ...]:
    log_p, log_q = torch.log_softmax(p_logits, dim), torch.log_softmax(q_logits, dim)
    gap = log_q - log_p
    p, q = log_p.exp_(), log_q.exp_()
    # Where p is 0 any gap beyond 1/2 will do: the term is then q.
    gap = keep_above(gap, p, 0.0).add_(torch.eq(p, 0, out=torch.empty_like(p)))
    far = torch.addcmul(q, p, gap, value=-1).sub_(p)
    near, size = near_zero(gap).mul_(p), gap.abs()
    terms = keep_above(far, size, NEAR)
    terms.add_(keep_above(near, size.neg_(), -NEAR * (1 + torch.finfo(p.dtype).eps)))
    divergence = terms.sum(dim, keepdim=True)
    # Infinite, it has no slope by p, where inf - inf would be NaN.
    limits = torch.finfo(p.dtype)
    excess = gap.clamp_(min=limits.min).add_(divergence.clamp(max=limits.max))
    return divergence, p, q, excess, (divergence != math.inf).to(p.dtype)


def _kl_backward(
    grad: Tensor, p: Tensor, q: Tensor, excess: Tensor, is_finite: Tensor,
    wanted: tuple[bool, bool],
) -> tuple[Tensor | None, ...]:  # fmt: skip
    return (
        torch.mul(p, -grad * is_finite).mul_(excess) if wanted[0] else None,
        torch.sub(q, p).mul_(grad) if wanted[1] else None,
    )


_kl = quick(_kl_plain, _kl_forward, _kl_backward)

"""Entropy and Kullback-Leibler divergence straight from logits."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from whynan.stable.exponentials import _expm1_minus
from whynan.stable.precision import widen, widen_pair


def entropy_from_logits(logits: Tensor, dim: int = -1) -> Tensor:
    """-sum(p log p) of p = softmax(logits); a -inf logit adds nothing and has gradient 0."""
    dtype, logits = widen(logits)
    log_p = torch.log_softmax(logits, dim)
    finite = torch.where(log_p == -math.inf, 0.0, log_p)
    return -(log_p.exp() * finite).sum(dim).to(dtype)


def kl_from_logits(p_logits: Tensor, q_logits: Tensor, dim: int = -1) -> Tensor:
    """KL(p || q) of two softmax distributions; inf where p needs what q rules out.

    Each term is q - p - p log(q/p), which is never negative, so near-equal distributions do not
    drown in the rounding of terms that cancel.
    """
    dtype, p_logits, q_logits = widen_pair(p_logits, q_logits)
    log_p, log_q = torch.log_softmax(p_logits, dim), torch.log_softmax(q_logits, dim)
    p, q = log_p.exp(), log_q.exp()
    absent = p == 0
    gap = torch.where(absent, 0.0, log_q) - torch.where(absent, 0.0, log_p)
    near = gap.abs() < 0.5
    small = p * _expm1_minus(torch.where(near, gap, 0.0))
    large = q - p - p * torch.where(near, 1.0, gap)
    terms = torch.where(near, small, large)
    return torch.where(absent, q, terms).sum(dim).to(dtype)

"""Softmax with a temperature, a floor or a mask, and what to do when nothing is left."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from whynan.stable.precision import power_of_two_for, together, widen
from whynan.stable.quick import above, is_plain, keep_above, quick

Empty = Literal["zeros", "uniform", "raise"]


def softmax(x: Tensor, dim: int = -1, *, temperature: Tensor | float = 1.0) -> Tensor:
    """softmax(x / temperature) without overflow of the quotient; one-hot at temperature 0.

    The largest value is taken off first: [100, 101] / 1e-3 overflows float16. At temperature 0,
    equal largest values share.
    """
    dtype, x = widen(x)
    is_number = not isinstance(temperature, Tensor)
    if is_number and temperature > 0 and temperature != 1 and not is_empty(x, dim):
        return _cool(x, dim, temperature).to(dtype)
    return torch.softmax(_over(x, dim, temperature), dim).to(dtype)


def log_softmax(x: Tensor, dim: int = -1, *, temperature: Tensor | float = 1.0) -> Tensor:
    """log(softmax(x / temperature)), for the loss of a distilled or calibrated model."""
    dtype, x = widen(x)
    return torch.log_softmax(_over(x, dim, temperature), dim).to(dtype)


def _over(x: Tensor, dim: int, temperature: Tensor | float) -> Tensor:
    """x / temperature, less what is the same in a row."""
    if is_empty(x, dim):
        return x
    if isinstance(temperature, Tensor):
        return _cooled_by(x, dim, temperature)
    return x if temperature == 1 else _cooled(x, dim, temperature)


def _cooled(x: Tensor, dim: int, temperature: float) -> Tensor:
    if temperature < 0:
        raise ValueError(f"temperature must not be negative, got {temperature}")
    below = x - x.detach().amax(dim, keepdim=True)
    if temperature == 0:
        return torch.where(below == 0, 0.0, torch.where(below < 0, -math.inf, below))
    return below / temperature


def _cool_forward(x: Tensor, dim: int, temperature: float) -> tuple[Tensor, ...]:
    """`torch.softmax` would look for the largest value again."""
    share = (x - x.amax(dim, keepdim=True)).div_(temperature).exp_()
    total = share.sum(dim, keepdim=True)
    share.div_(total)
    return share, share, total, total.new_full((), temperature)


def _cool_backward(
    grad: Tensor, share: Tensor, total: Tensor, temperature: Tensor, wanted: tuple[bool]
) -> tuple[Tensor]:
    part = share * grad
    return (part.addcmul_(share, part.sum_to_size(total.shape), value=-1).div_(temperature),)


_cool = quick(
    lambda x, dim, temperature: torch.softmax(_cooled(x, dim, temperature), dim),
    _cool_forward,
    _cool_backward,
)


def _cooled_by(x: Tensor, dim: int, temperature: Tensor) -> Tensor:
    """A temperature that may be learned: a -inf logit gives it no gradient, nor does a 0."""
    _refuse_negative(temperature)
    temperature = temperature.to(x.dtype)
    below = x - x.detach().amax(dim, keepdim=True)
    cold = temperature < torch.finfo(x.dtype).tiny
    temperature = torch.where(cold, 1.0, temperature)
    # The slope by the temperature is below / temperature^2, which overflows where the quotient does
    # not, and times a gradient of 0 is then NaN. In this form each factor is applied in turn.
    scale = power_of_two_for(temperature)
    part, whole = below * scale, temperature * scale
    hidden = (part / whole / whole).detach() == -math.inf
    scaled = torch.where(hidden, -math.inf, torch.where(hidden, 0.0, part) / whole)
    frozen = torch.where(below == 0, 0.0, torch.where(below < 0, -math.inf, below))
    return torch.where(cold, frozen, scaled)


def _refuse_negative(temperature: Tensor) -> None:
    """Only where a look costs nothing; elsewhere a negative temperature counts as 0."""
    if temperature.device.type != "cpu" or not is_plain(temperature):
        return
    negative = temperature.detach() < 0
    if bool(negative.any()):
        first = temperature.detach()[negative][0].item()
        raise ValueError(f"temperature must not be negative, got {first:g}")


def clipped_softmax(x: Tensor, dim: int = -1, *, floor: float | None = None) -> Tensor:
    """Probabilities of at least `floor` that still sum to 1 and keep their gradient.

    Clamping probabilities cuts the gradient and the sum, clamping logits limits what can be
    learned; this mixes in a uniform share: p * (1 - n * floor) + floor. By default the shares sum
    to one rounding step of the type.
    """
    dtype, wide = widen(x)
    n = x.shape[dim] if x.dim() else 1
    if n == 0:
        return torch.softmax(wide, dim).to(dtype)
    if floor is None:
        info = torch.finfo(dtype)
        floor = max(info.eps / n, info.smallest_normal * info.eps)
    if not 0 < floor * n < 1:
        raise ValueError(f"floor must lie between 0 and 1/{n}, got {floor}")
    return (torch.softmax(wide, dim) * (1 - n * floor)).add_(floor).to(dtype)


def masked_softmax(x: Tensor, mask: Tensor, dim: int = -1, *, empty: Empty = "zeros") -> Tensor:
    """softmax over the entries where `mask` is True; exactly 0 elsewhere.

    A row with nothing left (hidden or -inf throughout) becomes zeros, uniform, or raises. Values
    under the mask, NaN included, reach neither the result nor the gradient.
    """
    dtype, x = widen(x)
    _refuse_numbers(mask)
    refuse_unknown(empty, "zeros", "uniform", "raise")
    x, mask = together(x, mask)
    if is_empty(x, dim):
        return torch.softmax(x, dim).to(dtype)
    p = _shares(x, mask, dim)
    if empty != "zeros":
        none = p.detach().sum(dim, keepdim=True) == 0
        if empty == "raise":
            _refuse_empty(none, dim)
        else:
            p = p + none.to(p.dtype) / p.shape[dim]
    return p.to(dtype)


def _shares_plain(x: Tensor, mask: Tensor, dim: int) -> Tensor:
    return _shares_of(torch.where(mask, x, -math.inf), dim)


def _shares_of(hidden: Tensor, dim: int) -> Tensor:
    """softmax, with zeros for a row of nothing but -inf."""
    top = hidden.detach().amax(dim, keepdim=True)
    none = top == -math.inf
    share = (hidden - torch.where(none, 0.0, top)).exp()
    return share / (share.sum(dim, keepdim=True) + none)


def _shares_forward(x: Tensor, mask: Tensor, dim: int) -> tuple[Tensor, ...]:
    weight = mask.to(x.dtype)
    hidden = above(x, weight, 0.5)
    # 0 for what is kept and -inf for the rest.
    hidden.add_((weight - 1).mul_(torch.finfo(x.dtype).max).mul_(2))
    top = hidden.amax(dim, keepdim=True)
    none = top == -math.inf
    share = hidden.sub_(torch.where(none, 0.0, top)).exp_()
    total = share.sum(dim, keepdim=True) + none
    share.div_(total)
    return share, share, total, weight


def _shares_backward(
    grad: Tensor, share: Tensor, total: Tensor, weight: Tensor, wanted: tuple[bool, bool]
) -> tuple[Tensor | None, ...]:
    part = share * grad
    part.addcmul_(share, part.sum_to_size(total.shape), value=-1)
    # A NaN that can be seen spoils its row, but not what is hidden there.
    return keep_above(part, weight, 0.5), None


_shares = quick(_shares_plain, _shares_forward, _shares_backward)


def masked_log_softmax(x: Tensor, mask: Tensor, dim: int = -1, *, empty: Empty = "zeros") -> Tensor:
    """log of `masked_softmax`: -inf where the mask is False, with gradient 0."""
    dtype, x = widen(x)
    _refuse_numbers(mask)
    refuse_unknown(empty, "zeros", "uniform", "raise")
    hidden = torch.where(mask, x, -math.inf)
    if is_empty(hidden, dim):
        return torch.log_softmax(hidden, dim).to(dtype)
    top, none = _top(hidden, dim)
    if empty == "raise":
        _refuse_empty(none, dim)
    below = hidden - top
    log_p = below - torch.log(torch.exp(below).sum(dim, keepdim=True) + none)
    if empty == "uniform":
        log_p = torch.where(none, -math.log(log_p.shape[dim]), log_p)
    return log_p.to(dtype)


def is_empty(x: Tensor, dim: int) -> bool:
    """Rows of no values, which have no largest one."""
    return x.dim() > 0 and x.shape[dim] == 0


def refuse_unknown(empty: str, *known: str) -> None:
    if empty not in known:
        choices = ", ".join(map(repr, known))
        raise ValueError(f"empty must be one of {choices}, got {empty!r}")


def _refuse_numbers(mask: Tensor) -> None:
    if mask.dtype is not torch.bool:
        raise TypeError(f"mask must be boolean (True: keep), got {mask.dtype}")


def _refuse_empty(none: Tensor, dim: int) -> None:
    if bool(none.any()):
        first = none.squeeze(dim).nonzero()[0].tolist()
        raise ValueError(f"masked_softmax: row {first} has nothing left under its mask")


def logsumexp(
    x: Tensor, dim: int = -1, *, mask: Tensor | None = None, keepdim: bool = False
) -> Tensor:
    """log(sum(exp(x))) over the entries where `mask` is True; -inf with gradient 0 for none."""
    dtype, x = widen(x)
    x = x if mask is None else torch.where(mask, x, -math.inf)
    if is_empty(x, dim):
        return torch.logsumexp(x, dim, keepdim=keepdim).to(dtype)
    result = _logsumexp(x, dim)
    return (result if keepdim else result.squeeze(dim)).to(dtype)


def _top(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """The largest value of each row where that is finite, else 0; and which have only -inf."""
    top = x.detach().amax(dim, keepdim=True)
    return torch.where(torch.isinf(top), 0.0, top), top == -math.inf


def _logsumexp_plain(x: Tensor, dim: int) -> Tensor:
    top, none = _top(x, dim)
    total = torch.exp(x - top).sum(dim, keepdim=True).masked_fill(none, 1.0)
    return (total.log() + top).masked_fill(none, -math.inf)


def _logsumexp_forward(x: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    top, _ = _top(x, dim)
    share = (x - top).exp_()
    total = share.sum(dim, keepdim=True)
    # At least 1, the share of the largest, unless there is none.
    return total.log().add_(top), share, total.clamp_(min=1.0)


_logsumexp = quick(
    _logsumexp_plain,
    _logsumexp_forward,
    lambda grad, share, total, wanted: (share * (grad / total),),
)

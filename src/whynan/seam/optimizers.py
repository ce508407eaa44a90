"""What an optimizer holds: parameters, state, hyper-parameters; and whether its update may overflow."""

from __future__ import annotations

from numbers import Real

import torch

from whynan.model import Scalar
from whynan.seam.private import has_storage
from whynan.seam.reading import all_hollow, can_be_read, local_of, readable

# An update of these is a short polynomial of gradient, state and parameter over sqrt(state) + eps.
# With all of them below TAME_LIMIT and an eps worth the name, no float32 result can overflow. With
# all below CALM_LIMIT and ordinary hyper-parameters one step adds at most 1e6 * 1e6 / 1e-12 and
# at most doubles: that stays below float32's 3e38 for CALM_STEPS steps without another look.
TAME = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop)
TAME_LIMIT = 1e12  # its square is still far from float32's limit
# Of gradients, in an update whose hyper-parameters are ordinary: averages of squares, which are
# no larger than the largest square, hold up to 1.8e19; sums of gradients with momentum far longer.
SQUARES_LIMIT = 1e19
SUMS_LIMIT = 1e30
CALM_LIMIT = 1e6
CALM_STEPS = 16
TAME_TYPES = (torch.float32, torch.float64, torch.bfloat16)
ROOTED = ("exp_avg_sq", "max_exp_avg_sq", "square_avg")  # averages of squares: never negative
NUMBERS = (float, int)
HYPER = ("lr", "betas", "eps", "weight_decay", "momentum", "alpha", "nesterov", "rho")

Optimizer = torch.optim.Optimizer


def moves_safely(optimizer: Optimizer) -> bool:
    """Whether moderate gradients cannot make this optimizer's update overflow."""
    if type(optimizer) not in TAME or not is_ordinary(optimizer):
        return False
    groups = optimizer.param_groups
    if groups[0].get("centered"):
        return False
    for group in groups:
        members = group["params"]
        if members and members[0].dtype not in TAME_TYPES:
            return False
    return True


def gradient_limit(optimizer: Optimizer) -> float:
    """Below it, the norm of all gradients says that the update cannot overflow, if it moves safely."""
    return SUMS_LIMIT if type(optimizer) is torch.optim.SGD else SQUARES_LIMIT


def is_ordinary(optimizer: Optimizer) -> bool:
    """lr at most 1, weight decay that at most doubles, momentum below 1, an eps worth the name."""
    for group in optimizer.param_groups:
        get = group.get
        lr, decay = get("lr", 0.0), get("weight_decay", 0.0)
        momentum, eps = get("momentum", 0.0), get("eps", 1.0)
        # A tensor is none of these: looking at it may mean waiting for a device.
        if not (
            isinstance(lr, NUMBERS)
            and isinstance(decay, NUMBERS)
            and isinstance(momentum, NUMBERS)
            and isinstance(eps, NUMBERS)
            and -1 <= lr <= 1
            and -1 <= decay <= 1
            and -1 < momentum < 1
            and eps >= 1e-12
        ):
            return False
    return True


def is_dry(optimizer: Optimizer) -> bool:
    """Whether nothing is behind its parameters: such a step trains nothing."""
    found = False
    for group in optimizer.param_groups:
        if group["params"]:
            if not all_hollow(group["params"]):
                return False
            found = True
    return found


def parameters(optimizer: Optimizer) -> list[tuple[str, torch.Tensor]]:
    """Every parameter that can be read, with a name to fall back on."""
    return [
        (f"param_groups[{g}][{i}]", parameter)
        for g, group in enumerate(optimizer.param_groups)
        for i, parameter in enumerate(group["params"])
        if can_be_read(local_of(parameter))
    ]


def state_of(optimizer: Optimizer) -> list[tuple[torch.Tensor, torch.Tensor, str | None]]:
    """(parameter, tensor, name of the state) for each parameter and each tensor kept for it."""
    found: list[tuple[torch.Tensor, torch.Tensor, str | None]] = []
    for _, parameter in parameters(optimizer):
        found.append((parameter, local_of(parameter).detach(), None))
        for key, state in optimizer.state.get(parameter, {}).items():
            if isinstance(state, torch.Tensor) and key != "step":
                values = readable(state)
                if values is not None and has_storage(values):
                    found.append((parameter, values, str(key)))
    return found


def largest(tensors: list[torch.Tensor]) -> float | None:
    """The largest magnitude in them all, with one transfer from the device."""
    dense = [t for t in tensors if t.layout is torch.strided and t.is_floating_point()]
    with torch.no_grad():
        ends = [end for t in dense if t.numel() for end in torch.aminmax(t)]
        if not ends:
            return None
        first = ends[0]
        if any(end.dtype != first.dtype or end.device != first.device for end in ends):
            ends = [end.to(first.device, torch.float32) for end in ends]
        return float(torch.stack(ends).abs().max())


def learning_rate(optimizer: Optimizer, *, waits: bool = True) -> float | None:
    """The first group's, which is most programs' only one; None if a device would have to be
    waited for, unless that is asked for."""
    lr = optimizer.param_groups[0].get("lr") if optimizer.param_groups else None
    if isinstance(lr, torch.Tensor):
        return _number(lr) if waits or lr.is_cpu else None
    return float(lr) if isinstance(lr, Real) else None


def hyper_of(optimizer: Optimizer) -> dict[str, Scalar]:
    """The hyper-parameters a report shows."""
    found: dict[str, Scalar] = {}
    group = optimizer.param_groups[0] if optimizer.param_groups else {}
    for name in HYPER:
        value = group.get(name)
        if isinstance(value, torch.Tensor):
            value = _number(value)
        if isinstance(value, bool):
            found[name] = value
        elif isinstance(value, Real):  # also one of NumPy's
            found[name] = float(value)
        elif isinstance(value, tuple):
            found[name] = str(value)
    return found


def _number(given: torch.Tensor) -> float | None:
    values = readable(given)
    return float(values) if values is not None and values.numel() == 1 else None

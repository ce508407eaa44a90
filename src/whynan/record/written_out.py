"""Kernels written out in elementary operations: slow, plain, and independent of the fast ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim.adagrad import adagrad
from torch.optim.adam import adam
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

from whynan.seam.kernels import math_attention

Given = Mapping[str, Any]  # the arguments by name
Results = list[Tensor | None] | None  # one for each output, as far as it is computed
MAX_PRODUCTS = 1 << 24  # numbers that are multiplied at once
HALVES = (torch.float16, torch.bfloat16)


def _first(given: Given, *names: str) -> Any:
    return next((given[name] for name in names if given.get(name) is not None), None)


def _gradients(
    function: Callable[..., Tensor], operands: Sequence[Any], arriving: Tensor
) -> Results:
    """What autograd makes of the plain function: nothing is accumulated anywhere."""
    leaves = [o.detach().requires_grad_() if isinstance(o, Tensor) else o for o in operands]
    wanted = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    with torch.enable_grad():
        out = function(*leaves)
        found = iter(torch.autograd.grad(out, wanted, arriving, allow_unused=True))
    return [next(found) if isinstance(leaf, Tensor) else None for leaf in leaves]


# ---- attention --------------------------------------------------------------------------


def attention(given: Given) -> Results:
    """By two matrix products and a softmax; of a backward kernel, the gradient of that."""
    if math_attention is None or given.get("dropout_p"):
        return None
    mask = _first(given, "attn_mask", "attn_bias")
    causal, scale = bool(given.get("is_causal")), given.get("scale")
    arriving = _first(given, "grad_out", "grad_out_")
    operands = (given["query"], given["key"], given["value"])

    def plain(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        out = math_attention(query, key, value, mask, 0.0, causal, None, scale=scale)
        return out[0]  # type: ignore[no-any-return]  # of torch

    if arriving is None:
        return [plain(*operands)]
    return _gradients(plain, operands, arriving)


# ---- convolutions -----------------------------------------------------------------------


def convolution(given: Given) -> Results:
    """Every window times the weights; of the backward kernel, the gradient of that."""
    x, weight = _first(given, "input", "self"), given["weight"]
    dims = weight.dim() - 2
    if given.get("transposed") or x.dim() != weight.dim():
        return None
    stride, padding, dilation = (_per_dim(given.get(n), dims, d) for n, d in SHAPE)
    groups = given.get("groups") or 1
    arriving = given.get("grad_output")
    if math.prod(weight.shape[1:]) * x.numel() // x.shape[1] > MAX_PRODUCTS:
        return None

    def plain(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return _windows(x, weight, bias, stride, padding, dilation, groups)

    if arriving is None:
        return [plain(x, weight, given.get("bias"))]
    bias = arriving.new_zeros(weight.shape[0])
    found = _gradients(plain, (x, weight, bias), arriving) or []
    wanted = given.get("output_mask", (True, True, True))
    return [g if asked else None for g, asked in zip(found, wanted, strict=True)]


SHAPE = (("stride", 1), ("padding", 0), ("dilation", 1))


def _per_dim(value: Any, dims: int, default: int) -> list[int]:
    if value is None or isinstance(value, int):
        return [default if value is None else value] * dims
    return list(value) * dims if len(value) == 1 else list(value)


def _windows(
    x: Tensor, weight: Tensor, bias: Tensor | None,
    stride: list[int], padding: list[int], dilation: list[int], groups: int,
) -> Tensor:  # fmt: skip
    sides = [side for p in reversed(padding) for side in (p, p)]
    x = torch.nn.functional.pad(x, sides)
    for d, (size, step, wide) in enumerate(zip(weight.shape[2:], stride, dilation, strict=True)):
        x = x.unfold(d + 2, wide * (size - 1) + 1, step)[..., ::wide]
    dims = len(stride)
    n, out = x.shape[0], x.shape[2 : 2 + dims]
    x = x.reshape(n, groups, x.shape[1] // groups, *out, *weight.shape[2:])
    weight = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
    places, kernel = "xyz"[:dims], "uvw"[:dims]
    y = torch.einsum(f"ngc{places}{kernel},goc{kernel}->ngo{places}", x, weight)
    y = y.reshape(n, -1, *out)
    return y if bias is None else y + bias.reshape(1, -1, *[1] * dims)


# ---- matrix products --------------------------------------------------------------------


def product(given: Given) -> Results:
    """Multiply, then add; half types in float32, as kernels do."""
    a = _first(given, "mat1", "batch1", "mat", "input") if "mat2" not in given else None
    a = a if a is not None else _first(given, "mat1", "self", "input")
    b = _first(given, "mat2", "batch2", "vec", "weight", "tensor", "other")
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return None
    dtype = a.dtype
    linear = "weight" in given
    a, b = (_wide(t) for t in (a, b.mT if linear else b))
    vector = b.dim() == 1
    first = a.unsqueeze(0) if a.dim() == 1 else a
    second = b.unsqueeze(-1) if vector else b
    if first.numel() * second.shape[-1] > MAX_PRODUCTS:
        return None
    out = (first.unsqueeze(-1) * second.unsqueeze(-3)).sum(-2)
    out = out.squeeze(-1) if vector else out
    out = out.squeeze(0) if a.dim() == 1 else out
    added = given.get("bias") if linear else None
    if "beta" in given:
        out, added = given.get("alpha", 1) * out, given["beta"] * _wide(given["self"])
    return [(out if added is None else out + added).to(dtype)]


def _wide(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in HALVES else tensor


# ---- updates ----------------------------------------------------------------------------


def update(base: str, given: Given) -> Results:
    """torch's plain optimizer, one tensor after the other; results in the order of the kernel's."""
    if given.get("grad_scale") is not None or given.get("found_inf") is not None:
        return None
    params, grads = given["self"], given["grads"]
    same = {n: given[n] for n in ("lr", "weight_decay", "maximize")}
    if base in ("_fused_adam", "_fused_adamw"):
        lists = [given[n] for n in ("exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs")]
        plain = adam if base == "_fused_adam" else adamw
        plain(
            params, grads, lists[0], lists[1], lists[2], _counted_back(given["state_steps"]),
            foreach=False, fused=False, amsgrad=given["amsgrad"], eps=given["eps"], beta1=given["beta1"], beta2=given["beta2"], **same,
        )  # fmt: skip
        return [*params, *grads, *(t for each in lists for t in each)]
    if base == "_fused_sgd":
        buffers = given["momentum_buffer_list"]
        held = buffers and not given["is_first_step"]  # else they hold nothing yet
        used: list[Tensor | None] = list(buffers) if held else [None] * len(params)
        rest = {n: given[n] for n in ("momentum", "dampening", "nesterov")}
        sgd(params, grads, used, foreach=False, fused=False, **rest, **same)
        return [*params, *grads, *used[: len(buffers)]]
    sums, steps = given["state_sums"], _counted_back(given["state_steps"])
    rest = {n: given[n] for n in ("lr_decay", "eps")}
    adagrad(params, grads, sums, steps, foreach=False, fused=False, **rest, **same)
    return [*params, *grads, *sums, *steps]


def _counted_back(steps: list[Tensor]) -> list[Tensor]:
    """The kernel is handed the number of this step, the plain form counts it itself."""
    return [step - 1 for step in steps]

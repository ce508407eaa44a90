"""What `whynan.stable` costs beside the naive form, forward and backward, eager and compiled.

python benchmarks/stable_speed.py            # eager and compiled
python benchmarks/stable_speed.py --eager    # without waiting for the compiler
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor

from whynan import stable

Function = Callable[..., Tensor]
REPEATS = 61


def data(low: float, high: float, *shape: int) -> Tensor:
    return (torch.rand(shape or (1000, 1000)) * (high - low) + low).requires_grad_()


def naive_masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    return (x * mask).sum(-1) / mask.sum(-1)


def naive_masked_var(x: Tensor, mask: Tensor) -> Tensor:
    mean = (x * mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True)
    return ((x - mean) ** 2 * mask).sum(-1) / mask.sum(-1)


def naive_cosine(u: Tensor, v: Tensor) -> Tensor:
    return (u * v).sum(-1) / (u.norm(dim=-1) * v.norm(dim=-1))


def naive_normalize(x: Tensor) -> Tensor:
    return x / x.norm(dim=-1, keepdim=True)


def naive_clip(x: Tensor) -> Tensor:
    return x * (1.0 / x.norm()).clamp(max=1.0)


def cases() -> dict[str, tuple[str, Function, Function, tuple[Tensor, ...]]]:
    """name: the naive form as written, it, ours, the inputs."""
    x, y, pos, neg = data(-3, 3), data(-3, 3), data(0.1, 3), data(-5, -0.1)
    inside, low = data(-0.9, 0.9), data(-9, -6)
    mask = torch.rand(1000, 1000) > 0.3
    s = stable
    return {
        "log1mexp": ("log(1 - exp(x))", lambda a: torch.log(1 - torch.exp(a)), s.log1mexp, (neg,)),
        "logsubexp": ("log(exp(a) - exp(b))", lambda a, b: torch.log(a.exp() - b.exp()), s.logsubexp, (x, low)),
        "log_cosh": ("log(cosh(x))", lambda a: torch.log(torch.cosh(a)), s.log_cosh, (x,)),
        "tanh_log_det": ("log(1 - tanh(x)**2)", lambda a: torch.log(1 - torch.tanh(a) ** 2), s.tanh_log_det, (x,)),
        "softplus_inv": ("log(exp(y) - 1)", lambda a: torch.log(torch.exp(a) - 1), s.softplus_inv, (pos,)),
        "expm1_minus": ("exp(x) - 1 - x", lambda a: torch.exp(a) - 1 - a, s.expm1_minus, (x,)),
        "safe_div": ("a / (b + 1e-8)", lambda a, b: a / (b + 1e-8), s.safe_div, (x, pos)),
        "safe_log": ("log(x + 1e-8)", lambda a: torch.log(a + 1e-8), s.safe_log, (pos,)),
        "safe_sqrt": ("sqrt(x + 1e-8)", lambda a: torch.sqrt(a + 1e-8), s.safe_sqrt, (pos,)),
        "safe_pow": ("(x + 1e-8) ** 0.3", lambda a: (a + 1e-8) ** 0.3, lambda a: s.safe_pow(a, 0.3), (pos,)),
        "safe_acos": ("acos(clamp(x, -1, 1))", lambda a: torch.acos(a.clamp(-1, 1)), s.safe_acos, (inside,)),
        "safe_asin": ("asin(clamp(x, -1, 1))", lambda a: torch.asin(a.clamp(-1, 1)), s.safe_asin, (inside,)),
        "safe_atan2": ("atan2(y, x)", torch.atan2, s.safe_atan2, (x, y)),
        "safe_norm": ("sqrt((x**2).sum(-1))", lambda a: (a**2).sum(-1).sqrt(), s.safe_norm, (x,)),
        "normalize": ("x / x.norm(dim=-1, keepdim=True)", naive_normalize, s.normalize, (x,)),
        "cosine_similarity": ("(u*v).sum(-1) / (|u| |v|)", naive_cosine, s.cosine_similarity, (x, y)),
        "angle_between": ("acos of that", lambda a, b: torch.acos(naive_cosine(a, b)), s.angle_between, (x, y)),
        "clip_norm": ("x * clamp(1 / x.norm(), max=1)", naive_clip, lambda a: s.clip_norm(a, 1.0), (x,)),
        "softmax": ("softmax(x / t)", lambda a: torch.softmax(a / 0.5, -1), lambda a: s.softmax(a, temperature=0.5), (x,)),
        "log_softmax": ("log(softmax(x / t))", lambda a: torch.softmax(a / 0.5, -1).log(), lambda a: s.log_softmax(a, temperature=0.5), (x,)),
        "clipped_softmax": ("clamp(softmax(x), min=1e-7)", lambda a: torch.softmax(a, -1).clamp(min=1e-7), s.clipped_softmax, (x,)),
        "masked_softmax": ("softmax(masked_fill(x, ~m, -inf))", lambda a: torch.softmax(a.masked_fill(~mask, -math.inf), -1), lambda a: s.masked_softmax(a, mask), (x,)),
        "masked_log_softmax": ("log of that", lambda a: torch.softmax(a.masked_fill(~mask, -math.inf), -1).log(), lambda a: s.masked_log_softmax(a, mask), (x,)),
        "masked_mean": ("(x*m).sum(-1) / m.sum(-1)", lambda a: naive_masked_mean(a, mask), lambda a: s.masked_mean(a, mask, dim=-1), (x,)),
        "masked_var": ("two such means", lambda a: naive_masked_var(a, mask), lambda a: s.masked_var(a, mask, dim=-1), (x,)),
        "masked_std": ("sqrt of that", lambda a: naive_masked_var(a, mask).sqrt(), lambda a: s.masked_std(a, mask, dim=-1), (x,)),
        "std": ("x.std(-1)", lambda a: a.std(-1), lambda a: s.std(a, dim=-1), (x,)),
        "logsumexp": ("log(sum(exp(x), -1))", lambda a: a.exp().sum(-1).log(), s.logsumexp, (x,)),
        "entropy_from_logits": ("-(p * log(p + 1e-8)).sum(-1)", lambda a: -((p := a.softmax(-1)) * (p + 1e-8).log()).sum(-1), s.entropy_from_logits, (x,)),
        "kl_from_logits": ("(p * log(p / q)).sum(-1)", lambda a, b: ((p := a.softmax(-1)) * (p / b.softmax(-1)).log()).sum(-1), s.kl_from_logits, (x, y)),
        "gumbel_like": ("-log(-log(rand))", lambda a: -torch.log(-torch.log(torch.rand_like(a))), s.gumbel_like, (x,)),
        "safe_categorical": ("multinomial(softmax(x), 1)", lambda a: torch.multinomial(a.softmax(-1), 1), lambda a: s.safe_categorical(logits=a), (x,)),
    }  # fmt: skip


def once(f: Function, inputs: tuple[Tensor, ...]) -> float:
    """Seconds of the processor, which others on the machine disturb less than those of the clock."""
    start = time.thread_time()
    y = f(*inputs)
    if y.requires_grad:
        torch.autograd.grad(y.sum(), inputs)
    return time.thread_time() - start


def ratio(naive: Function, ours: Function, inputs: tuple[Tensor, ...]) -> tuple[float, float]:
    """Milliseconds of the naive form, and the median of ours as a multiple of it, taken in pairs."""
    times: tuple[list[float], list[float]] = ([], [])
    for i in range(REPEATS + 3):
        for f, into in zip((naive, ours), times, strict=True):
            spent = once(f, inputs)
            if i >= 3:
                into.append(spent)
    ratios = [ours / naive for naive, ours in zip(*times, strict=True)]
    return statistics.median(times[0]) * 1e3, statistics.median(ratios)


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    compiled = "--eager" not in sys.argv
    wanted = [a for a in sys.argv[1:] if not a.startswith("--")]
    print("| function | naive form | naive, eager | ours, eager | ours, compiled |")
    print("|---|---|---|---|---|")
    for name, (text, naive, ours, inputs) in cases().items():
        if wanted and name not in wanted:
            continue
        base, eager = ratio(naive, ours, inputs)
        cell = "-"
        if compiled and name not in ("gumbel_like", "safe_categorical"):
            torch._dynamo.reset()
            cell = f"{ratio(torch.compile(naive), torch.compile(ours), inputs)[1]:.2f} x"
        print(f"| `{name}` | `{text}` | {base:.1f} ms | {eager:.2f} x | {cell} |", flush=True)


if __name__ == "__main__":
    main()

"""Functions that stay finite and right, in value and gradient, where the naive form does not.

    from whynan import stable

    log_p = stable.log_softmax(scores, temperature=0.5)
    ratio = stable.safe_div(hits, total)          # 0 where total is 0, and so is the gradient

They follow four rules. The gradient at an excluded point is 0, unless the true slope is infinite.
A NaN that comes in comes out; what a mask hides does not. Half types are computed in float32.
Defaults such as `eps` suit the dtype. Where torch itself has the right function, use that one:
docs/stable.md lists which.
"""

from whynan.stable.divergences import entropy_from_logits, kl_from_logits
from whynan.stable.elementary import (
    safe_acos,
    safe_asin,
    safe_atan2,
    safe_div,
    safe_log,
    safe_pow,
    safe_sqrt,
)
from whynan.stable.exponentials import (
    expm1_minus,
    log1mexp,
    log_cosh,
    logsubexp,
    softplus_inv,
    tanh_log_det,
)
from whynan.stable.reductions import masked_mean, masked_std, masked_var, std
from whynan.stable.sampling import gumbel_like, safe_categorical
from whynan.stable.softmaxes import (
    clipped_softmax,
    log_softmax,
    logsumexp,
    masked_log_softmax,
    masked_softmax,
    softmax,
)
from whynan.stable.vectors import (
    angle_between,
    clip_norm,
    cosine_similarity,
    normalize,
    safe_norm,
)

__all__ = [
    "angle_between",
    "clip_norm",
    "clipped_softmax",
    "cosine_similarity",
    "entropy_from_logits",
    "expm1_minus",
    "gumbel_like",
    "kl_from_logits",
    "log1mexp",
    "log_cosh",
    "log_softmax",
    "logsubexp",
    "logsumexp",
    "masked_log_softmax",
    "masked_mean",
    "masked_softmax",
    "masked_std",
    "masked_var",
    "normalize",
    "safe_acos",
    "safe_asin",
    "safe_atan2",
    "safe_categorical",
    "safe_div",
    "safe_log",
    "safe_norm",
    "safe_pow",
    "safe_sqrt",
    "softmax",
    "softplus_inv",
    "std",
    "tanh_log_det",
]

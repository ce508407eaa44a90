"""Which operation a function, method or module is, whatever library spells it how."""

from __future__ import annotations

# Where functions live whose last name says what they do.
LIBRARIES = (
    ("torch.nn.functional.", "torch"),
    ("torch.special.", "torch"),
    ("torch.linalg.", "torch"),
    ("torch.nn.utils.", "torch"),
    ("torch.optim.", "torch"),
    ("torch.", "torch"),
    ("numpy.linalg.", "numpy"),
    ("numpy.random.", "numpy"),
    ("numpy.", "numpy"),
    ("math.", "math"),
    ("scipy.special.", "numpy"),
)

ALIASES = {
    "absolute": "abs", "fabs": "abs", "clip": "clamp", "multiply": "mul", "divide": "div", "true_divide": "div",
    "power": "pow", "float_power": "pow", "subtract": "sub", "negative": "neg", "inverse": "inv",
    "arccos": "acos", "arcsin": "asin", "concatenate": "cat", "concat": "cat", "expit": "sigmoid",
    "mm": "matmul", "bmm": "matmul", "mv": "matmul", "inner": "dot",
    "vdot": "dot", "nanmean": "mean", "log_sigmoid": "logsigmoid",
    "matrix_norm": "norm", "random_sample": "rand", "rand_like": "rand", "random": "rand",
    "uniform": "rand", "empty_like": "empty", "new_empty": "empty",
    "pinverse": "pinv", "fmax": "maximum", "fmin": "minimum", "normalise": "normalize",
    "clip_grad_norm": "clip_grad_norm_",
}  # fmt: skip

KEYWORDS = {
    "axis": "dim", "keepdims": "keepdim", "a": "input", "x": "input", "self": "input",
    "a_min": "min", "a_max": "max", "ddof": "correction", "unbiased": "correction", "ord": "p",
    "x1": "input", "x2": "other", "y": "other",
}  # fmt: skip

# What calling a module does; anything else is a layer, with values that nothing is known about.
MODULES = {
    "Softmax": "softmax", "Softmax2d": "softmax", "LogSoftmax": "log_softmax", "Sigmoid": "sigmoid",
    "LogSigmoid": "logsigmoid", "Tanh": "tanh", "ReLU": "relu", "ReLU6": "relu", "Softplus": "softplus",
    "Hardtanh": "clamp", "CrossEntropyLoss": "cross_entropy", "NLLLoss": "nll_loss",
    "BCELoss": "binary_cross_entropy", "BCEWithLogitsLoss": "binary_cross_entropy_with_logits",
    "KLDivLoss": "kl_div", "CosineSimilarity": "cosine_similarity",
}  # fmt: skip
# Modules that hand values on: a softmax before them is still a softmax.
TRANSPARENT = frozenset({"Flatten", "Unflatten", "Identity"})

# Methods that only tensors have: their receiver is one.
TENSOR_METHODS = frozenset([
    "softmax", "log_softmax", "sigmoid", "unsqueeze", "clamp_min", "clamp_max", "masked_fill",
    "permute", "rsqrt", "expm1", "log1p", "logsumexp", "exp", "log", "tanh", "relu", "bmm",
    "matmul", "norm", "index_select", "gather", "scatter", "detach", "backward", "float", "half",
    "double", "bfloat16", "cuda", "softplus", "acos", "asin", "sqrt", "log2", "log10", "pow",
    "square", "neg", "reciprocal", "det", "inverse", "logdet", "chunk", "new_zeros", "new_empty",
    "long", "bool", "requires_grad_", "expand", "expand_as", "contiguous", "amax", "amin",
])  # fmt: skip
SCALAR_METHODS = frozenset({"item", "numel", "size", "dim", "tolist", "nelement", "element_size"})
SCALAR_CALLS = frozenset({"len", "int", "float", "round", "bool", "id", "hash", "ord"})
SCALAR_ATTRIBUTES = frozenset({"shape", "ndim", "size", "dtype", "device", "eps", "epsilon"})

# What a method or function of these names computes is worth knowing; other methods stay unknown.
KNOWN = frozenset([
    "abs", "acos", "add", "all", "amax", "amin", "any", "argmax", "asin", "atan2", "bernoulli",
    "cat", "ceil", "clamp", "clamp_max", "clamp_min", "clip_grad_norm_", "cos",
    "cosine_similarity", "count_nonzero", "cross_entropy", "binary_cross_entropy",
    "binary_cross_entropy_with_logits", "kl_div", "nll_loss", "cumprod", "cumsum", "det", "div",
    "dot", "einsum", "exp", "expm1", "exponential", "floor", "full", "full_like", "empty", "inv",
    "pinv", "isnan", "isfinite", "isinf", "log", "log10", "log1p", "log2", "log_softmax",
    "logaddexp", "logdet", "logit", "logsigmoid", "logsumexp", "masked_fill", "matmul", "max",
    "maximum", "mean", "min", "minimum", "mul", "nan_to_num", "neg", "norm", "normalize", "ones",
    "ones_like", "pow", "prod", "rand", "randn", "reciprocal", "relu", "rsqrt", "sigmoid", "sin",
    "slogdet", "softmax", "softplus", "sqrt", "square", "std", "sub", "sum", "tanh", "tril",
    "triu", "var", "vector_norm", "where", "zeros", "zeros_like", "zeros", "eye", "arange",
    "linspace", "nansum", "histc", "bincount", "one_hot", "log_sigmoid", "silu", "gelu", "elu",
    "leaky_relu", "Adam", "AdamW", "cdist", "trace", "diagonal", "solve", "xlogy",
])  # fmt: skip
OPERATORS = {
    "Add": "add", "Sub": "sub", "Mult": "mul", "Div": "div", "Pow": "pow", "MatMult": "matmul",
    "FloorDiv": "floordiv", "Mod": "mod", "BitAnd": "and", "BitOr": "or", "BitXor": "xor",
    "LShift": "shift", "RShift": "shift",
}  # fmt: skip
CONSTANTS = {
    "math.pi": 3.141592653589793, "math.e": 2.718281828459045, "numpy.pi": 3.141592653589793,
    "torch.pi": 3.141592653589793, "math.inf": float("inf"), "numpy.inf": float("inf"),
    "torch.inf": float("inf"), "math.nan": float("nan"), "numpy.nan": float("nan"),
    "torch.nan": float("nan"), "numpy.Inf": float("inf"), "numpy.NaN": float("nan"),
    "numpy.NAN": float("nan"), "numpy.NINF": float("-inf"), "math.tau": 6.283185307179586,
}  # fmt: skip


def split(qualified: str) -> tuple[str, str]:
    """The library and operation of a fully qualified function; ('', '') for anything else.

    >>> split("torch.nn.functional.log_softmax"), split("numpy.arccos"), split("json.loads")
    (('torch', 'log_softmax'), ('numpy', 'acos'), ('', ''))
    """
    for prefix, library in LIBRARIES:
        if qualified.startswith(prefix):
            name = qualified[len(prefix) :]
            return (library, operation(name)) if "." not in name else ("", "")
    return "", ""


def operation(name: str) -> str:
    """One name for each operation; the in-place form computes the same."""
    if name.endswith("_") and not name.startswith("_") and name != "clip_grad_norm_":
        name = name[:-1]
    return ALIASES.get(name, name)

"""Which operation a function, method or module is, whatever library spells it how."""

from __future__ import annotations

from whynan.ops.op import Op
from whynan.ops.table import OPERATORS as PYTHON
from whynan.ops.table import TABLE, row, that

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

KEYWORDS = {
    "axis": "dim", "keepdims": "keepdim", "a": "input", "x": "input", "self": "input",
    "a_min": "min", "a_max": "max", "ddof": "correction", "unbiased": "correction", "ord": "p",
    "x1": "input", "x2": "other", "y": "other",
}  # fmt: skip

# Modules that hand values on: a softmax before them is still a softmax.
TRANSPARENT = frozenset({"Flatten", "Unflatten", "Identity"})

SCALAR_METHODS = frozenset({"item", "numel", "size", "dim", "tolist", "nelement", "element_size"})
SCALAR_CALLS = frozenset({"len", "int", "float", "round", "bool", "id", "hash", "ord"})
SCALAR_ATTRIBUTES = frozenset({"shape", "ndim", "size", "dtype", "device", "eps", "epsilon"})

LAYERS = ("sample", "heads", "features", "channel", "window", "bag")


def _computes(op: Op) -> bool:
    """Not what writes into memory, nor a layer: modules have methods of such names."""
    fills = "fills" in op.does and op.reads == "unknown"
    writes = "overwrites" in op.does and "random" not in op.does
    return not (fills or writes or op.reads == "put" or op.reads in LAYERS)


# What a method or function of these names computes is worth knowing; other methods stay unknown.
KNOWN = frozenset(op.name for op in TABLE if _computes(op)) | {"clip_grad_norm_", "Adam", "AdamW"}
TENSOR_METHODS = that("tensor") | {"long", "bool"}
# How operators are written in Python, and what is no operation on numbers.
OPERATORS = {node: op.name for node, op in PYTHON.items()} | {
    "BitAnd": "and", "BitOr": "or", "BitXor": "xor", "LShift": "shift", "RShift": "shift",
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
    if name in ("clip_grad_norm", "clip_grad_norm_"):
        return "clip_grad_norm_"
    if name.endswith("_") and not name.startswith("_"):
        name = name[:-1]
    return row(name).name or name

"""What an operation does to its tensors, read once from its schema."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from whynan.seam.members import kernel_of, names_of, schema_of, schemas_of
from whynan.seam.private import has_kernel

ALLOCATORS = frozenset(
    {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted"}
)
# The value of these comes from an argument, not from arithmetic.
FILLS = frozenset(
    {
        "full", "full_like", "new_full", "fill", "scalar_tensor", "masked_fill", "constant_pad_nd",
        "index_fill", "fill_diagonal", "value_selecting_reduction_backward",
    }
)  # fmt: skip
# They hand their values on unchanged: pointwise for the walk, never an origin by themselves.
COPIES = frozenset(
    {"clone", "copy", "_to_copy", "lift_fresh", "lift", "contiguous", "lift_fresh_copy"}
)
# In-place operations that do not read what they overwrite.
OVERWRITES = frozenset(
    {"copy", "fill", "zero", "set", "uniform", "normal", "bernoulli", "exponential", "random",
     "log_normal", "cauchy", "geometric"}
)  # fmt: skip
# They cannot make a non-finite value out of finite ones: nothing to look for in their results.
FAITHFUL = frozenset(
    {
        "zeros", "zeros_like", "new_zeros", "zero", "ones", "ones_like", "new_ones", "clone", "stack",
        "cat", "relu", "threshold_backward", "select_backward", "slice_backward", "index_select",
        "gather", "embedding", "neg", "maximum", "minimum", "sigmoid", "tanh", "sin", "cos",
        "max_pool2d_with_indices", "repeat", "flip", "roll", "tril", "triu", "_softmax",
    }
)  # fmt: skip
# Views whose derivative is such a view again: nothing is ever computed at their nodes.
TURNS = frozenset({"t", "transpose", "permute", "unsqueeze", "squeeze"})
# Values come in from outside: torch.tensor and from_numpy, or torch.load giving a storage.
ENTRIES = frozenset({"lift_fresh", "lift", "set", "from_file", "from_blob"})
# Written without the schema saying so (torch 2.13), and only in training.
_STATISTICS = ("running_mean", "running_var")
HIDDEN_WRITES = {
    "native_batch_norm": _STATISTICS,
    "cudnn_batch_norm": _STATISTICS,
    "miopen_batch_norm": _STATISTICS,
}
# They change how a tensor is looked at, and no value.
RESHAPES = frozenset(
    {"squeeze_", "unsqueeze_", "t_", "transpose_", "swapaxes_", "swapdims_", "detach_"}
)
# Done once more, they disturb nobody; others may count their calls, or talk to the other ranks.
REPEATABLE = frozenset({"aten", "prims"})
IGNORED_NAMESPACES = frozenset({"profiler", "prim", "profiler_", "c10d_internal"})


class OpInfo:
    """Facts about one operator overload."""

    __slots__ = (
        "allocates", "arg_names", "base", "call", "composite", "entry", "faithful", "func", "makes_no_node",
        "mutates", "name", "namespace", "overwrites", "pointwise", "quiet", "random", "reads_out", "turns",
        "view",
        "write_args", "write_kwargs",
    )  # fmt: skip

    def __init__(self, func: Any, *, training: bool = True) -> None:
        self.quiet: OpInfo | None = None  # the same in evaluation, when it leaves statistics alone
        self.func = func  # kept, so that nothing else gets its identity
        self.call = kernel_of(func)
        schema = schema_of(func)
        if schema is None:
            self._higher_order(str(func))
            return
        name, overload = names_of(func)
        self.namespace: str = func.namespace
        self.name = f"{func.namespace}.{name}.{overload}"
        self.base: str = name.rstrip("_")
        tags = getattr(func, "tags", ())
        self.pointwise = torch.Tag.pointwise in tags or self.base in COPIES
        self.random = torch.Tag.nondeterministic_seeded in tags
        self.allocates = self.namespace == "aten" and self.base in ALLOCATORS
        self.entry = self.base in ENTRIES
        self.reads_out = self.base == "_local_scalar_dense"
        self.arg_names = [a.name for a in schema.arguments]
        written = [
            (i, a) for i, a in enumerate(schema.arguments) if a.alias_info and a.alias_info.is_write
        ]
        self.write_args = tuple(i for i, a in written if not a.kwarg_only)
        if self.base in HIDDEN_WRITES and training:
            self.write_args += tuple(self.arg_names.index(n) for n in HIDDEN_WRITES[self.base])
            self.quiet = OpInfo(func, training=False)
        self.write_kwargs = tuple(a.name for _, a in written if a.kwarg_only)
        self.overwrites = bool(self.write_args) and self.base in OVERWRITES
        returns = schema.returns
        aliases = [r.alias_info for r in returns]
        self.view = name in RESHAPES or (
            bool(aliases)
            and not self.entry
            and all(a is not None and not a.is_write for a in aliases)
        )
        self.turns = self.view and self.base in TURNS
        self.mutates = bool(self.write_args or self.write_kwargs)
        self.makes_no_node = func.namespace in IGNORED_NAMESPACES or (
            self.view and self.base == "detach"
        )
        self.composite = func.namespace == "aten" and _is_composite(func.name())
        self.faithful = self.namespace == "aten" and self.base in FAITHFUL and not self.write_kwargs

    def _higher_order(self, name: str) -> None:
        """`torch.cond` and its like: functions among the arguments, one opaque operation."""
        self.namespace, self.base = "higher_order", name
        self.name = f"higher_order.{name}.default"
        self.arg_names = [f"operand {i}" for i in range(64)]
        self.write_args, self.write_kwargs = (), ()
        self.allocates = self.entry = self.reads_out = self.overwrites = self.faithful = False
        self.composite = False
        self.pointwise = self.view = self.turns = self.makes_no_node = self.mutates = False
        self.random = True  # never recomputed


def _is_composite(name: str) -> bool:
    """Made of other operations on every device. `silu_backward` is so on some only: elsewhere
    its parts would give other digits."""
    own = any(has_kernel(name, key) for key in ("CPU", "CUDA"))
    return has_kernel(name, "CompositeImplicitAutograd") and not own


@lru_cache(maxsize=256)
def takes_numbers(name: str) -> bool | None:
    """Whether any form of torch's operator of that name can be given a number; None: no such one."""
    schemas = schemas_of(name)
    if not schemas:
        return None
    kinds = [str(argument.type) for schema in schemas for argument in schema.arguments]
    return any("number" in kind or "Scalar" in kind or "float" in kind for kind in kinds)


KNOWN: dict[int, OpInfo] = {}  # by identity: an operator's own hash is slow


def info_for(info: OpInfo, args: Any) -> OpInfo:
    """Of batch norm, the one that fits this call."""
    at = info.arg_names.index("training")
    return info.quiet if info.quiet is not None and len(args) > at and not args[at] else info


def info_of(func: Any) -> OpInfo:
    """The facts about `func`, computed at the first call."""
    known = KNOWN.get(id(func))
    if known is None:
        known = KNOWN[id(func)] = OpInfo(func)
    return known

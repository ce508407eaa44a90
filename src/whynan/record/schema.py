"""What an operation does to its tensors, read once from its schema."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from whynan.ops.op import Op, Reads
from whynan.ops.table import NOTHING_KNOWN, kernel, row
from whynan.seam.members import kernel_of, names_of, schema_of, schemas_of
from whynan.seam.private import has_kernel

# Written without the schema saying so (torch 2.13), and only in training.
_STATISTICS = ("running_mean", "running_var")
HIDDEN_WRITES = {
    "native_batch_norm": _STATISTICS,
    "cudnn_batch_norm": _STATISTICS,
    "miopen_batch_norm": _STATISTICS,
}
# Done once more, they disturb nobody; others may count their calls, or talk to the other ranks.
REPEATABLE = frozenset({"aten", "prims"})
# By how their names begin: their results are other ranks' values, and nobody else may call them.
EXCHANGES = ("c10d", "_c10d_functional", "_dtensor", "symm_mem")
IGNORED_NAMESPACES = frozenset({"profiler", "prim", "profiler_", "c10d_internal"})


class OpInfo:
    """Facts about one operator overload."""

    __slots__ = (
        "allocates", "arg_names", "base", "call", "composite", "entry", "exchanges", "faithful", "func", "makes_no_node",
        "mutates", "name", "namespace", "overwrites", "quiet", "random", "reads", "reads_out", "row", "turns",
        "view", "write_args", "write_kwargs",
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
        self.exchanges = self.namespace.startswith(EXCHANGES)
        self.name = f"{func.namespace}.{name}.{overload}"
        self.base: str = name.rstrip("_")
        tags = getattr(func, "tags", ())
        self.row: Op = row(self.base) if func.namespace == "aten" else NOTHING_KNOWN
        does = self.row.does
        self.reads: Reads = _reads(self, torch.Tag.pointwise in tags)
        self.random = torch.Tag.nondeterministic_seeded in tags
        self.allocates = "allocates" in does
        self.entry = "enters" in does
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
        self.overwrites = bool(self.write_args) and "overwrites" in does
        returns = schema.returns
        aliases = [r.alias_info for r in returns]
        reshapes = name.endswith("_") and self.row.reads == "view"  # no value is written
        self.view = reshapes or (
            bool(aliases)
            and not self.entry
            and all(a is not None and not a.is_write for a in aliases)
        )
        self.turns = self.view and "turns" in does
        self.mutates = bool(self.write_args or self.write_kwargs)
        self.makes_no_node = func.namespace in IGNORED_NAMESPACES or (
            self.view and self.base == "detach"
        )
        self.composite = func.namespace == "aten" and _is_composite(func.name())
        moves = self.reads == "move" and self.row is NOTHING_KNOWN  # a derivative of a view
        self.faithful = ("faithful" in does or moves) and not self.write_kwargs

    def _higher_order(self, name: str) -> None:
        """`torch.cond` and its like: functions among the arguments, one opaque operation."""
        self.namespace, self.base = "higher_order", name
        self.exchanges = False
        self.name = f"higher_order.{name}.default"
        self.arg_names = [f"operand {i}" for i in range(64)]
        self.write_args, self.write_kwargs = (), ()
        self.allocates = self.entry = self.reads_out = self.overwrites = self.faithful = False
        self.composite = False
        self.row, self.reads = NOTHING_KNOWN, "unknown"
        self.view = self.turns = self.makes_no_node = self.mutates = False
        self.random = True  # never recomputed


def _reads(info: OpInfo, is_pointwise: bool) -> Reads:
    """What hands its values on is elementwise for the walk back, whatever torch says of it."""
    found: Reads = kernel(info.base)[1] if info.namespace == "aten" else "unknown"
    if found in ("lists", "where"):
        return found
    return "elementwise" if is_pointwise or "copies" in info.row.does else found


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

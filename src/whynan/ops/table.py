"""The one table of operations, and the questions that are asked of it."""

from __future__ import annotations

import re
from collections.abc import Callable

from whynan.ops.arithmetic import ARITHMETIC
from whynan.ops.functions import FUNCTIONS
from whynan.ops.layers import LAYERS
from whynan.ops.matrices import MATRICES
from whynan.ops.op import Does, Op, Reads
from whynan.ops.reductions import REDUCTIONS
from whynan.ops.shapes import SHAPES

TABLE = (*ARITHMETIC, *FUNCTIONS, *REDUCTIONS, *MATRICES, *LAYERS, *SHAPES)
NOTHING_KNOWN = Op(name="")
LISTS = "_foreach_"  # torch's operators on lists of tensors


def _by(names: Callable[[Op], tuple[str, ...]]) -> dict[str, Op]:
    found: dict[str, Op] = {}
    for op in TABLE:
        for name in names(op):
            if found.setdefault(name, op) is not op:
                raise ValueError(f"`{name}` stands in two rows: {found[name].name} and {op.name}")
    return found


def _node(operator: str) -> str:
    """What torch calls the autograd node of an operator: `Log1P` for `log1p`."""
    return "".join(part.title() for part in operator.split("_"))


_ROWS = _by(lambda op: op.spellings)
_SLOPES = _by(lambda op: op.backward)
_NODES = {_node(name): name.strip("_") for op in TABLE for name in reversed(op.aten)}
MODULES = {name: op.name for op in TABLE for name in op.modules}
OPERATORS = {op.python[0]: op for op in TABLE if op.python}  # by the node of a syntax tree


def row(name: str) -> Op:
    """The operation, by any of its spellings; one that nothing is known of for any other.

    >>> row("arccos").name, row("_softmax").name, row("json").name
    ('acos', 'softmax', '')
    """
    return _ROWS.get(name) or _ROWS.get(f"_{name}", NOTHING_KNOWN)


def kernel(base: str) -> tuple[Op, Reads]:
    """Of an operator of torch's, also a derivative's: whose it is, and what it reads."""
    if base in _SLOPES:
        return _SLOPES[base], _SLOPES[base].reads_back
    found = row(base.removeprefix(LISTS))
    return found, "lists" if base.startswith(LISTS) else found.reads


def spelled(wanted: Callable[[Op], bool]) -> frozenset[str]:
    """Every spelling of the operations that are wanted."""
    return frozenset(name for op in TABLE if wanted(op) for name in op.spellings)


def that(*words: Does) -> frozenset[str]:
    """Every spelling of the operations that do one of these things."""
    return spelled(lambda op: not op.does.isdisjoint(words))


def failing(mechanism: str) -> frozenset[str]:
    """Every spelling of the operations that can make a non-finite value in this way."""
    return spelled(lambda op: mechanism in op.fails)


def reading(*kinds: Reads) -> frozenset[str]:
    """Every spelling of the operations that read their operands in one of these ways."""
    return spelled(lambda op: op.reads in kinds)


def forward_of(node: str | None) -> str:
    """The operator whose derivative an autograd node computes.

    >>> forward_of("SqrtBackward0"), forward_of("torch::autograd::Log1PBackward0")
    ('sqrt', 'log1p')
    """
    bare = re.sub(r"Backward\d*$", "", (node or "").split("::")[-1])
    return _NODES.get(bare) or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", bare).lower()

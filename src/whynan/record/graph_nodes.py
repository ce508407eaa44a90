"""The operation at which a compiled graph departs from eager mode: each one evaluated both ways."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from whynan.model import Operand, OpRecord, Scalar, Site, base_name
from whynan.record.freeze import scalar_of
from whynan.record.schema import info_of
from whynan.record.storages import Index
from whynan.seam.compiling import Backend, Ran, where_made, with_every_value
from whynan.seam.private import Overload
from whynan.seam.sites import LIBRARY, THIRD_PARTY, USER, kind_of_file
from whynan.seam.stats import first_nonfinite, index_of, stats_of
from whynan.source.stack_text import sites_in

# How far one operation may be from eager mode's on the same operands, relative. Half types are kept
# wider inside a compiled kernel: there, only what is not finite tells.
APART = {torch.float32: 1e-3, torch.float64: 1e-9}
SLACK = 8  # how many times as far as rounding an operand moves a result may be the compiled one


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """Where the compiled graph departs, and where that becomes a non-finite value."""

    origin: OpRecord
    bad: OpRecord | None  # None: the origin itself
    operations: int
    departs: bool  # the origin is wrong by itself
    compiled: float | None
    eager: float | None


def locate(ran: Ran, backend: Backend) -> Located | None:
    """None: compiled with all its values to be seen, the graph is as in eager mode."""
    whole, nodes = with_every_value(ran.graph)
    with torch.no_grad():
        plain = dict(zip(nodes, whole(*_copies(ran.inputs)), strict=True))
        compiled = backend(whole, _copies(ran.inputs))(*_copies(ran.inputs))
    values = dict(zip(nodes, compiled, strict=True))
    places = dict(
        zip((n for n in whole.graph.nodes if n.op == "placeholder"), ran.inputs, strict=True)
    )
    bad = next((n for n in nodes if _turned(values[n], plain[n]).any()), None)
    if bad is None:
        return None
    known = places | values
    above = _ancestors(bad)
    departs = ((n, _departure(n, known)) for n in nodes if n in above)
    found = next(((n, d) for n, d in departs if d is not None), None)
    node, (index, eager) = found or (bad, (first_nonfinite(values[bad]), None))
    origin = _frozen(node, known, index, ran.is_backward)
    last = _frozen(bad, known, first_nonfinite(values[bad]), ran.is_backward)
    return Located(
        origin=origin,
        bad=last if bad is not node else None,
        operations=len(nodes),
        departs=found is not None,
        compiled=origin.value,
        eager=eager if eager is not None else _at(plain[node], index),
    )


def _copies(inputs: list[Any]) -> list[Any]:
    return [i.clone() if isinstance(i, Tensor) else i for i in inputs]


def _turned(value: Tensor, plain: Tensor) -> Tensor:
    return ~value.isfinite() & plain.isfinite()


def _ancestors(node: Node) -> set[Node]:
    found, waiting = {node}, [node]
    while waiting:
        new = [n for n in waiting.pop().all_input_nodes if n not in found]
        found.update(new)
        waiting += new
    return found


def _departure(node: Node, known: dict[Node, Any]) -> tuple[Index, float | None] | None:
    """Where its compiled value is not what torch makes of the same operands, and what that is. The
    operands may be rounded here that were not inside the kernel: what that explains is no departure."""
    value = known[node]
    again = _again(node, known)
    if again is None or again.shape != value.shape or again.dtype != value.dtype:
        return None
    turned, slack = _turned(value, again), torch.zeros_like(again)
    for near in _neighbours(node, known):
        other = _again(node, near)
        if other is None:
            return None
        turned &= other.isfinite()
        slack += (other - again).abs()
    if turned.any():
        index = index_of(int(turned.reshape(-1).to(torch.uint8).argmax()), value.shape)
        return index, _at(again, index)
    limit = APART.get(value.dtype)
    both = value.isfinite() & again.isfinite() & slack.isfinite()
    if limit is None or not both.any():
        return None
    scale = torch.maximum(value.abs(), again.abs())
    if torch.Tag.pointwise not in getattr(node.target, "tags", ()):
        scale = scale.where(both, 0.0).max().expand_as(scale)
    allowed = (scale * limit + SLACK * slack).clamp_min(torch.finfo(value.dtype).tiny)
    apart = ((value - again).abs() / allowed).where(both, 0.0).reshape(-1)
    at = int(apart.argmax())
    if float(apart[at]) <= 1:
        return None
    index = index_of(at, value.shape)
    return index, _at(again, index)


def _neighbours(node: Node, known: dict[Node, Any]) -> Iterator[dict[Node, Any]]:
    """One operand after the other a unit in the last place away, up and down."""
    for operand in node.all_input_nodes:
        value = known.get(operand)
        if isinstance(value, Tensor) and value.is_floating_point():
            eps = torch.finfo(value.dtype).eps
            yield from ({**known, operand: value * (1 + sign * eps)} for sign in (1, -1))


def _again(node: Node, known: dict[Node, Any]) -> Tensor | None:
    """The operation by torch's own kernel, from the compiled graph's values."""
    missing = [n for n in node.all_input_nodes if n not in known]
    draws = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
    if missing or draws or not callable(node.target):
        return None
    args = torch.fx.node.map_arg(node.args, known.__getitem__)
    kwargs = torch.fx.node.map_arg(node.kwargs, known.__getitem__)
    with torch.no_grad():
        found = node.target(*args, **kwargs)
    return found if isinstance(found, Tensor) else None


def _at(value: Tensor, index: Index | None) -> float | None:
    return float(value[index]) if index is not None else None


# ---- as a record ------------------------------------------------------------------------


def _frozen(node: Node, known: dict[Node, Any], index: Index | None, is_backward: bool) -> OpRecord:
    value = known[node]
    out = Operand(
        role="output 0", stats=stats_of(value), index=index, dtype=str(value.dtype).removeprefix("torch."),
        value=_at(value, index), first=first_nonfinite(value, prefer_nan=False),
    )  # fmt: skip
    names = info_of(node.target).arg_names if isinstance(node.target, Overload) else []
    op = info_of(node.target).name if names else f"compiled.{node.name}"
    given = [*zip(names, node.args, strict=False), *node.kwargs.items()]
    return OpRecord(
        index=0,
        op=op,
        phase="backward" if is_backward else "forward",
        step=0,
        site=_site(node, base_name(op)),
        inputs=tuple(_operand(r, known[a], index, value) for r, a in given if isinstance(a, Node) and isinstance(known.get(a), Tensor)),
        outputs=(out,),
        scalars=_scalars(given),
        derived=is_backward,
    )  # fmt: skip


def _operand(role: str, value: Tensor, index: Index | None, result: Tensor) -> Operand:
    same = index is not None and value.shape == result.shape
    return Operand(
        role=role,
        stats=stats_of(value),
        index=index if same else None,
        value=_at(value, index) if same else None,
    )


def _scalars(given: list[tuple[str, Any]]) -> dict[str, Scalar]:
    return {role: scalar_of(a) for role, a in given if isinstance(a, (bool, int, float))}


def _site(node: Node, base: str) -> Site | None:
    """The innermost line that is not torch's; of a library's, with the program's own."""
    sites = [s for s in sites_in(where_made(node), base) if kind_of_file(s.file) > LIBRARY]
    if not sites:
        return None
    innermost = sites[-1]
    users = [s for s in sites if kind_of_file(s.file) == USER]
    if kind_of_file(innermost.file) == THIRD_PARTY and users:
        from dataclasses import replace

        return replace(innermost, caller=users[-1])
    return innermost

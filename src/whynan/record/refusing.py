"""A finite value that a distribution of torch's refuses: which element, what it must be, who made it."""

from __future__ import annotations

import ast
import inspect
from dataclasses import dataclass, replace
from typing import Any

import torch

from whynan.model import REFUSED, Evidence, Operand, OpRecord, Scalar, Site
from whynan.record.exceptions import chain_of, frames_of, tracebacks
from whynan.record.harm import Harm
from whynan.record.reads import Given
from whynan.record.records import Record
from whynan.record.tracer import Tracer
from whynan.record.upstream import Upstream
from whynan.seam.private import base_of
from whynan.seam.sites import Frames, site_of
from whynan.seam.stats import stats_of
from whynan.source.names import names_of
from whynan.source.positions import node_at
from whynan.source.trees import last_word, tree_of

CHECKS = "torch.distributions.distribution"  # the module whose functions refuse
MAX_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Refused:
    """What stood in the frame of the check that raised."""

    role: str  # "scale"
    value: torch.Tensor
    index: tuple[int, ...]
    needs: str  # "above 0"
    by: str  # "Normal"
    owner: type
    frames: Frames | None  # of the user's call


def harm_of_refusal(error: BaseException, tracer: Tracer, upstream: Upstream) -> Harm | None:
    """What an exception complains of that is about a finite value."""
    refused = refused_by(error)
    if refused is None:
        return None
    harm = Harm(
        sink="exception", subject=type(error).__name__, frames=refused.frames,
        message=str(error).split("\n")[0].rstrip(" :"), step=tracer.step,
    )  # fmt: skip
    with torch.no_grad():
        harm.known = _evidence(harm, refused, tracer, upstream)
    return harm


def refused_by(error: BaseException) -> Refused | None:
    for raised in chain_of(error):
        for trace in tracebacks(raised.__traceback__)[:1]:
            frame = trace.tb_frame
            if frame.f_globals.get("__name__") == CHECKS:
                return _of(frame.f_locals, frames_of(raised))
    return None


def _of(names: Any, frames: Frames | None) -> Refused | None:
    owner, value, valid = names.get("self"), names.get("value"), names.get("valid")
    constraint = names.get("constraint", names.get("support"))
    if not isinstance(value, torch.Tensor) or not isinstance(valid, torch.Tensor) or valid.all():
        return None
    with torch.no_grad():
        while hasattr(constraint, "base_constraint"):  # of each element by itself
            constraint = constraint.base_constraint
            valid = constraint.check(value)
        place = tuple((~valid).nonzero()[0].tolist())
        part = value[place]  # of a vector or matrix that is refused whole, the smallest element
        inner = torch.unravel_index(part.argmin(), part.shape) if part.dim() else ()
    index = (*place, *(int(i) for i in inner))
    return Refused(
        role=names.get("param", "value"), value=value, index=index, needs=_words(constraint),
        by=type(owner).__name__, owner=type(owner), frames=frames,
    )  # fmt: skip


def _words(constraint: Any) -> str:
    low, high = (getattr(constraint, n, None) for n in ("lower_bound", "upper_bound"))
    if low is not None and high is not None:
        return f"between {low:g} and {high:g}"
    name = type(constraint).__name__.lower()
    if low is not None and name.strip("_").startswith("greater"):
        return f"{'at least' if name.endswith('eq') else 'above'} {low:g}"
    return "0 or more, and 1 together" if "simplex" in name else f"in {constraint}"


def is_trained(refused: Refused) -> bool:
    """Whether it is a parameter itself: no operation made it since its last update."""
    value = refused.value
    kept = base_of(value)
    kept = value if kept is None else kept
    return kept.is_leaf and kept.requires_grad


def _evidence(harm: Harm, refused: Refused, tracer: Tracer, upstream: Upstream) -> Evidence:  # fmt: skip
    """The origin is the user's call; what made the value stands behind its operand."""
    value, index = refused.value.detach(), refused.index
    site = site_of(refused.frames) if refused.frames is not None else None
    name, given = _argument(site, refused)
    operand = Operand(
        role=refused.role, name=name, stats=stats_of(value), index=index,
        value=float(value[index].item()), dtype=str(value.dtype).removeprefix("torch."),
    )  # fmt: skip
    ref = tracer.ref(value)
    if ref is not None:
        here = Record()
        here.index = tracer.next_index
        read = Given(refused.role, ref, 0, None).part(index)
        held = upstream.freezer.names.name_of_storage(ref.entry)
        operand = replace(operand, upstream=upstream.of(here, read, operand))
        if held is not None or is_trained(refused):
            operand = replace(operand, source=" ".join(held or ("parameter", name or "")).strip())
    scalars: dict[str, Scalar] = {"needs": refused.needs, "by": refused.by}
    origin = OpRecord(
        index=-1, op=REFUSED, phase="forward", step=harm.step, site=site, inputs=(operand,),
        scalars=scalars | ({"given": given} if given else {}),
    )  # fmt: skip
    return Evidence(
        sink="exception", subject=harm.subject, step=harm.step, origin=origin, origin_kind="raised",
        sink_site=site, message=harm.message,
    )  # fmt: skip


def _argument(site: Site | None, refused: Refused) -> tuple[str | None, str | None]:
    """What the user wrote for it, and what a name of his was given."""
    call = node_at(site) if site is not None else None
    if site is None or not isinstance(call, ast.Call) or last_word(call.func) != refused.by:
        return None, None  # it is made of others', or asked for a density
    places = [n for n in inspect.signature(refused.owner.__init__).parameters if n != "self"]  # type: ignore[misc] # of a class
    by_name = [k.value for k in call.keywords if k.arg == refused.role]
    place = places.index(refused.role) if refused.role in places else len(call.args)
    found = by_name or call.args[place : place + 1]
    if not found or len(ast.unparse(found[0])) > MAX_SHOWN:
        return None, None
    binding = names_of(tree_of(site.file)).given(found[0])
    value = binding.value if binding is not None and binding.how == "is" else None
    given = None if value is None else f"`{ast.unparse(value)}` (line {value.lineno})"
    return ast.unparse(found[0]), given if value is not None and len(given or "") < 2 * MAX_SHOWN else None  # fmt: skip

"""Exceptions that complain about non-finite values, and the tensor they complain about."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

import torch

from whynan.record.harm import Harm
from whynan.record.records import Record
from whynan.record.tracer import Tracer
from whynan.seam.reading import local_of
from whynan.seam.sites import USER, Frames, kind_of_file
from whynan.seam.tensors import tensors_in
from whynan.source.trees import tree_of

COMPLAINT = re.compile(
    r"\bnans?\b|\binfs?\b|\binfinit|non-?finite|not finite|isfinite|isnan|isinf"
    r"|positive[- ]definite|singular|ill-conditioned|failed to converge|did not converge"
    r"|invalid values|element < 0|should be between 0 and 1|diverge|exploded|all(-| )finite",
    re.IGNORECASE,
)
MATRIX_OPERATION = re.compile(r"linalg|cholesky|inverse|lu_|qr|svd|eig|lstsq")
ABOUT_A_MATRIX = re.compile(r"linalg|cholesky|singular|positive[- ]definite|element < 0", re.I)


def harm_of_exception(
    error: BaseException, tracer: Tracer, is_nonfinite: Callable[[torch.Tensor], bool]
) -> Harm | None:
    """The harm behind an exception, or None when it is about something else."""
    if not complains(error):
        return None
    chain = list(chain_of(error))
    text = _text(chain)
    frames = frames_of(error)
    harm = Harm(
        sink="exception",
        subject=type(error).__name__,
        frames=frames,
        message=str(error).split("\n")[0].rstrip(" :"),
        step=tracer.step,
    )
    record = _really_raised(tracer)
    if record is not None and any(record.raised is e for e in chain):
        harm.record = record
        if record.tainted_in or ABOUT_A_MATRIX.search(text):
            return harm
    if "returned nan values" in text:
        harm.record = None
        harm.tensors = _last_bad(tracer)
        return harm if harm.tensors else None
    found = bad_local(error, is_nonfinite)
    if found is not None:
        harm.record = None
        harm.tensors = [local_of(found)]
        return harm
    return None


def bad_local(
    error: BaseException, is_nonfinite: Callable[[torch.Tensor], bool]
) -> torch.Tensor | None:
    """The tensor that it must be about, in the variables of the frames that it left."""
    return next((t for t in _local_tensors(error.__traceback__) if is_nonfinite(t)), None)


def complains(error: BaseException) -> bool:
    """Whether an exception is about a non-finite value, or may be."""
    if not isinstance(error, Exception) and not (isinstance(error, SystemExit) and error.code):
        return False
    return says_so(error) or bool(COMPLAINT.search(f"{error} {_condition(error)}"))


def says_so(error: BaseException) -> bool:
    """Whether its own words are about a non-finite value; a program may end itself in any words."""
    is_exit = isinstance(error, SystemExit)
    return not is_exit and bool(COMPLAINT.search(_text(list(chain_of(error)))))


def _text(chain: list[BaseException]) -> str:
    return " ".join(f"{type(e).__name__}: {e}" for e in chain)


def _really_raised(tracer: Tracer) -> Record | None:
    """The operation that failed; for linalg's own check of errors, the one that it checks."""
    record = tracer.last_raised
    if record is None or record.info.base != "_linalg_check_errors":
        return record
    raised, thread = record.raised, record.thread
    before = [r for r in tracer.records.values() if r.thread == thread and r.index < record.index]
    for candidate in reversed(before):
        if MATRIX_OPERATION.search(candidate.info.base):
            candidate.raised = raised
            return candidate
    return record


def chain_of(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def tracebacks(trace: TracebackType | None) -> list[TracebackType]:
    """Innermost first."""
    found = []
    while trace is not None:
        found.append(trace)
        trace = trace.tb_next
    return found[::-1]


def frames_of(error: BaseException) -> Frames | None:
    for trace in tracebacks(error.__traceback__):
        if kind_of_file(trace.tb_frame.f_code.co_filename) == USER:
            return Frames(trace.tb_frame.f_code, trace.tb_lasti, None, 0, None)
    return None


def _condition(error: BaseException) -> str:
    """What an `assert` asserts, or the innermost `if` around a `raise` or an exit asks."""
    for trace in tracebacks(error.__traceback__)[:1]:
        file, line = trace.tb_frame.f_code.co_filename, trace.tb_lineno
        kinds = (ast.Assert, ast.If) if isinstance(error, AssertionError) else ast.If
        around = [n for n in ast.walk(tree_of(file)) if isinstance(n, kinds) and _holds(n, line)]
        if around:
            return ast.unparse(max(around, key=lambda n: n.lineno).test)
    return ""


def _holds(node: ast.Assert | ast.If, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _local_tensors(trace: TracebackType | None) -> Iterator[torch.Tensor]:
    """Tensors in the local variables of the raising frames, innermost frame first."""
    for step in tracebacks(trace):
        for value in list(step.tb_frame.f_locals.values()):
            yield from tensors_in(value, 2)


def _last_bad(tracer: Tracer) -> list[Any]:
    bad: list[Record] = [r for r in tracer.records.values() if r.bad and r.node]
    if not bad:
        return []
    tensor = bad[-1].outs[bad[-1].bad[0]].tensor()
    return [] if tensor is None else [tensor]

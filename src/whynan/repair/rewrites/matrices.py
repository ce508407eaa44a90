"""Singular matrices: a small multiple of the identity, or a solver that copes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import libcst as cst

from whynan.ops.matrices import DEFINITE, INVERTIBLE
from whynan.ops.table import spelled
from whynan.repair.calls import Fn, binary, fn, number_of
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.constants import Constants
from whynan.repair.edit import Edit
from whynan.repair.places import Place
from whynan.repair.project import Project
from whynan.repair.rewrites.amounts import unused
from whynan.repair.source import Expression, Source

RIDGED = spelled(lambda op: op.domain in (INVERTIBLE, DEFINITE) and "fix" not in (op.lacks or ()))
TRANSPOSED = (".mT", ".T", ".transpose(-1, -2)", ".transpose(-2, -1)", ".transpose(1, 2)")
DRAWN = re.compile("rand|normal|uniform|empty|orthogonal")
TRULY = 1e-2  # of the largest eigenvalue
LARGER = ("1e-4", "1e-3")  # beyond what rounding does to a matrix of float32 numbers


def propose(case: Case) -> Iterator[Candidate]:
    source = case.source
    if source is None:
        return
    call = fn(source, case.node)
    if call is None:
        return
    if case.mechanism == "singular_matrix":
        if is_indefinite(case):
            return
        if call.name == "solve" and len(call.rest) == 1:
            code = source.code(call.node)
            edit = Edit(source).replace(
                call.node, f"{code.replace('solve(', 'lstsq(', 1)}.solution"
            )
            title = "solve by least squares, which has an answer for a singular matrix too"
            yield from case.change(edit, "lstsq", title, Tier.EXACT)
        if call.name in RIDGED:
            yield from _ridged(case, source, call)
    elif case.mechanism == "gradient_singularity" and call.name in ("svd", "eigh"):
        if call.name == "svd":
            yield from _polar(case, source, call)
        if case.origin.step == 0:
            yield from _begun_apart(case)


def _begun_apart(case: Case) -> Iterator[Candidate]:
    """`nn.Parameter(iso.repeat(n, 1))`: equal eigenvalues are those of the start, drawn numbers have none."""
    calls = [(s, c) for s in case.files() for c in s.every(cst.Call) if s.code(c.func).endswith("Parameter")]  # fmt: skip
    if len(calls) != 1 or not calls[0][1].args:
        return
    source, call = calls[0]
    start, line = call.args[0].value, source.statement(call)
    if line is None or DRAWN.search(source.code(start)):
        return
    name, edit = source.code(start), Edit(source)
    if not isinstance(start, cst.Name):
        name = unused(source, "start", line)
        edit.before(line, f"{name} = {source.code(start)}")
    edit.replace(start, f"{name} + 0.05 * torch.randn_like({name})")
    title = "begin with distinct eigenvalues, a small random distance apart: equal ones have no vectors of their own"
    yield from case.change(edit, "begun_apart", title, Tier.GUARD)


def is_indefinite(case: Case) -> bool:
    """Whether an eigenvalue is negative beyond all rounding: then a ridge is none any more."""
    found = [o.eigenvalues for o in case.origin.inputs if o.eigenvalues is not None]
    return any(low < -TRULY * max(abs(high), -low) for low, high in found)


def _polar(case: Case, source: Source, call: Fn) -> Iterator[Candidate]:
    """`u @ vh`, the nearest rotation: the iteration for it asks for no distance between singular values."""
    line = source.statement(call.node)
    assign = line.body[0] if line is not None else None
    target = assign.targets[0].target if isinstance(assign, cst.Assign) else None
    if line is None or not isinstance(target, cst.Tuple) or len(target.elements) != 3 or call.rest:
        return
    names = [e.value for e in target.elements if isinstance(e.value, cst.Name)]
    reads = [source.other_uses(n.value, call.node) for n in names]
    if len(names) != 3 or [len(r) for r in reads] != [1, 0, 1]:
        return
    (left,), _, (right,) = reads
    product = source.parent(left)
    if not isinstance(product, cst.BinaryOperation) or product.left is not left:
        return
    turned = source.code(product.right) in {f"{right.value}{end}" for end in TRANSPOSED}
    is_v = not (call.namespace or "").endswith("linalg")  # `torch.svd` gives V, not its transpose
    if not isinstance(product.operator, cst.MatrixMultiply) or turned is not is_v:
        return
    if not turned and product.right is not right:
        return
    polar = unused(source, "polar", call.node)
    step = f"for _ in range(20):\n    {polar} = 0.5 * ({polar} + torch.linalg.inv({polar}).mT)"
    edit = Edit(source).before(line, f"{polar} = {source.code(call.operand)}", step)
    edit.remove(line).replace(product, polar)
    title = "find the nearest rotation by Newton's iteration: its gradient needs no singular vectors, which equal singular values leave undefined"
    yield from case.change(edit, "polar_iteration", title, Tier.EXACT)


def _ridged(case: Case, source: Source, call: Fn) -> Iterator[Candidate]:
    """By more and more; what is there already grows instead of getting a second one."""
    jitter = _jitter(case, source, call)
    if jitter is not None:
        literal = jitter.node
        assert isinstance(literal, Expression)
        for eps in LARGER:
            if (number_of(literal) or 0) < float(eps):
                title = f"add more of the identity: {eps} of it"
                if jitter.source.path != source.path:
                    title += f" ({os.path.basename(jitter.source.path)}, line {jitter.source.line(literal)})"
                edit = Edit(jitter.source).replace(literal, eps)
                yield from case.change(edit, "ridge", title, Tier.GUARD)
    named = isinstance(call.operand, (cst.Name, cst.Attribute))
    line = source.statement(call.node)
    if not named and line is None:
        return
    matrix = source.code(call.operand) if named else unused(source, "matrix", call.node)
    eye = f"torch.eye({matrix}.shape[-1], dtype={matrix}.dtype, device={matrix}.device)"
    mean = f"{matrix}.diagonal(dim1=-2, dim2=-1).mean()"
    amounts = [f"{eps} * {mean}" for eps in LARGER]
    if jitter is None:
        amounts.insert(0, "1e-10" if "64" in case.dtype else "1e-6")
    for amount in amounts:
        title = "add a small multiple of the identity"
        if mean in amount:
            title += f", {amount.split()[0]} of the mean of the diagonal"
        edit = Edit(source).replace(call.operand, f"{matrix} + {amount} * {eye}")
        if not named and line is not None:
            edit.before(line, f"{matrix} = {source.code(call.operand)}")
        yield from case.change(edit, "ridge", title, Tier.GUARD)


def _jitter(case: Case, source: Source, call: Fn) -> Place | None:
    """`1e-6` of `k + 1e-6 * torch.eye(n)`, there or where the matrix or the number got its name."""
    constants = Constants(Project(case))
    home = constants.project.source(source.path)
    here = next((c for c in home.every(cst.Call) if home.start(c) == source.start(call.node)), None) if home else None  # fmt: skip
    again = fn(home, here) if home is not None else None
    if home is None or again is None:
        return None
    matrix = again.operand
    total = binary(matrix, cst.Add) or binary(home.value_of(matrix), cst.Add)
    for part in (total.left, total.right) if total is not None else ():
        product = binary(part, cst.Multiply)
        if product is None:
            continue
        for number, identity in ((product.left, product.right), (product.right, product.left)):
            func = identity.func if isinstance(identity, cst.Call) else None
            if func is not None and home.code(func).split(".")[-1] == "eye":
                return constants.of(home, number)
    return None

"""Singular matrices: a small multiple of the identity, or a solver that copes."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from whynan.repair.calls import fn
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.edit import Edit

RIDGED = ("solve", "inv", "inverse", "inv_ex", "cholesky", "cholesky_ex", "slogdet", "logdet")


def propose(case: Case) -> Iterator[Candidate]:
    source = case.source
    if source is None:
        return
    call = fn(source, case.node)
    if call is None:
        return
    if case.mechanism == "singular_matrix":
        if call.name == "solve" and len(call.rest) == 1:
            code = source.code(call.node)
            edit = Edit(source).replace(
                call.node, f"{code.replace('solve(', 'lstsq(', 1)}.solution"
            )
            title = "solve by least squares, which has an answer for a singular matrix too"
            yield from case.change(edit, "lstsq", title, Tier.EXACT)
        if call.name in RIDGED:
            matrix = source.receiver(call.operand)
            simple = isinstance(call.operand, (cst.Name, cst.Attribute))
            if simple:
                eps = "1e-10" if "64" in case.dtype else "1e-6"
                eye = f"torch.eye({matrix}.shape[-1], dtype={matrix}.dtype, device={matrix}.device)"
                edit = Edit(source).replace(call.operand, f"{matrix} + {eps} * {eye}")
                title = "add a small multiple of the identity"
                yield from case.change(edit, "ridge", title, Tier.GUARD)
    elif case.mechanism == "gradient_singularity" and call.name == "svd":
        matrix = source.receiver(call.operand)
        text = f"{source.code(call.operand)} + 1e-4 * torch.randn_like({matrix})"
        title = "separate equal singular values by a little noise: their vectors have no gradient"
        edit = Edit(source).replace(call.operand, text)
        yield from case.change(edit, "separate_values", title, Tier.GUARD)

"""Why a matrix has no inverse or no vectors of its own."""

from __future__ import annotations

from collections.abc import Iterator

from whynan.diagnosis.given import place_of
from whynan.diagnosis.makers import CANCELLED, maker_of
from whynan.diagnosis.words import plural
from whynan.model import Cause, Operand, OpRecord, number
from whynan.ops.table import forward_of, row


def from_decomposition(mechanism: str, op: OpRecord, culprit: Operand | None) -> Iterator[Cause]:
    """An eigenvalue that is 0 but for its rounding; values that are equal, and so have no vectors."""
    maker, forward = maker_of(culprit), row(forward_of(op.node) or "").name
    if mechanism == "singular_matrix" and maker is not None and maker.name in ("mm", "bmm"):
        shapes = [o.stats.shape for o in maker.inputs if o.stats is not None]
        if len(shapes) == 2 and shapes[0][-1] < shapes[0][-2]:
            (size, rank), line = shapes[0][-2:], place_of(maker, op)
            text = f"{line}: a product over {plural(rank, 'row')} has no more than {rank:,} independent ones, and the matrix asks for {size:,}"
            yield Cause(code="too_few_values", evidence=text)
    distance = (
        culprit is None or not culprit.upstream or culprit.upstream[0].derived
    )  # else a value of 0
    if (
        mechanism == "gradient_singularity"
        and op.derived
        and forward in ("svd", "eigh")
        and distance
    ):
        which = "singular values" if forward == "svd" else "eigenvalues"
        text = f"two {which} of the matrix are equal, and the gradient divides by their distance"
        yield Cause(code="constant_input", evidence=text)
    if maker is None or culprit is None or row(maker.name).name not in ("eigh", "eigvalsh"):
        return
    value, largest = culprit.value, culprit.stats.max if culprit.stats is not None else None
    if value is not None and largest and value < 0 and -value < CANCELLED * largest:
        text = f"{place_of(maker, op)}: an eigenvalue of 0 came out as {number(value)}, a rounding error beside the largest, {number(largest)}"
        yield Cause(code="cancellation", evidence=text)

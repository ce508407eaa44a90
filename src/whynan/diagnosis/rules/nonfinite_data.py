"""A value that was already non-finite when it came in.

What it catches
    NaN or inf in data that entered torch from outside (NumPy, a file, a DataLoader's worker), or
    in a parameter or buffer that was bad before anything was recorded; a plain Python or NumPy
    number, such as a learning rate, that was already NaN or infinite when an operation got it.

Why it hurts
    One bad cell makes the loss NaN and, after one step, every weight.

Example
    x = torch.from_numpy(numpy.loadtxt("table.csv"))      # an empty cell became NaN

Use instead
    Drop or impute such rows where the data is prepared, and check it: `assert torch.isfinite(x).all()`

When it is fine
    When missing values are marked by NaN and masked out before any arithmetic.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import replace

from whynan.diagnosis.circumstances import loaded_state
from whynan.diagnosis.naming import short_call
from whynan.diagnosis.registry import rule
from whynan.diagnosis.words import are_bad, at, bad_values, origin_label, subject
from whynan.model import Evidence, Finding, Fix, Operand, OpRecord, Scalar, number

MAX_SHOWN = 40
CLEAN_DATA = Fix(
    kind="clean_data",
    title="drop these rows where the data is prepared, or fill the gaps, before training",
)
ONE_PROCESS = Fix(
    kind="one_process",
    title="run it once with `num_workers=0`, where what the dataset does is recorded as well",
)
CLEAN_COLUMN = Fix(
    kind="clean_column",
    title="find what computes that column: a constant column divided by its spread of 0 is NaN; repair it there, or leave the column out",
)
EARLIER_CHECKPOINT = Fix(
    kind="earlier_checkpoint",
    title="go back to a checkpoint from before it went bad; `whynan check FILE` names its bad tensors",
)


@rule("N040", "nonfinite-data", "nonfinite_data", kinds=("entry", "number"))
def nonfinite_data(op: OpRecord, evidence: Evidence) -> Finding | None:
    if evidence.origin_kind == "number":
        return _number(op, evidence)
    value = op.inputs[0] if op.inputs else None
    source = (value.source if value else None) or "data"
    held = source.startswith(("parameter", "buffer", "gradient"))
    loaded = loaded_state(evidence)
    if held:
        what = f"{source} already {_held(value)} before anything was recorded"
    elif value is not None and value.kept_as is not None:
        how = "was loaded" if loaded or value.file else "came in"
        what = f"{value.kept_as} already {_held(value)} when it {how}"
    else:
        what = f"{loaded or 'the data'} already {_held(value)} when it {'was loaded' if loaded else 'came in'}"
    stats = value.stats if value is not None else None
    index = (value.first or value.index) if value is not None else None
    observed = [bad_values(stats) + (f", first{at(index)}" if index else "")]
    if value is not None and value.file is not None:
        observed.append(f"it was loaded from {os.path.basename(value.file)}")
    if stats is not None and stats.nonfinite:
        observed.append(str(stats))
    hidden = not (held or loaded) and evidence.is_from_worker
    columns = value.columns if value is not None else ()
    if columns:
        observed.append(f"nothing in {_named(columns)} is finite")
    explained = len(columns) * stats.shape[0] if stats is not None and columns else 0
    spread = stats is None or not columns or stats.nonfinite > explained
    clean = (*((CLEAN_COLUMN,) if columns else ()), *((CLEAN_DATA,) if spread else ()))
    return Finding(
        headline=f"{subject(evidence)} because {what}",
        observed=tuple(observed),
        label=f"{are_bad(stats) if stats is not None and stats.nonfinite else bad_values(stats)} on arrival",
        culprit=0 if value is not None else None,
        unknown=("what made it: the batch came from a worker process of the DataLoader, and those are not seen",) if hidden else (),
        fixes=(_earlier(value),) if loaded or held or (value and value.kept_as) else (ONE_PROCESS, *clean) if hidden else clean,
    )  # fmt: skip


def _held(value: Operand | None) -> str:
    stats = value.stats if value is not None else None
    if stats is None or not stats.nonfinite:
        return "held a non-finite value"
    return "held NaN" if stats.nan else "held inf" if stats.posinf else "held -inf"


def _earlier(value: Operand | None) -> Fix:
    if value is None or value.file is None:
        return EARLIER_CHECKPOINT
    return replace(EARLIER_CHECKPOINT, title=EARLIER_CHECKPOINT.title.replace("FILE", value.file))


def _number(op: OpRecord, evidence: Evidence) -> Finding:
    """Torch got it as a plain number: a weight, a learning rate."""
    given = _nonfinite(op.scalars)
    what = f"was given the number {number(next(iter(given.values()), op.value))}"
    where, given_as = "where that number is computed", "it"
    hyper = _nonfinite(evidence.hyper) if op.phase == "optimizer" else {}
    for name, value in list(hyper.items())[:1]:
        what = f"ran with {name} = {number(value)}"
        where, given_as = f"what sets {name}, such as a schedule", name
    return Finding(
        headline=f"{subject(evidence)} because `{_call(op)}` {what}",
        observed=(f"{given_as} is a plain number of Python or NumPy, not a tensor",),
        unknown=("how it was computed: only tensors are recorded",),
        label=origin_label(op),
        fixes=(Fix(kind="look_upstream", title=f"look at {where}, and keep it finite there"),),
    )


def _call(op: OpRecord) -> str:
    """`opt.step()`, as typed where that is short."""
    typed = op.site.expression if op.site is not None else ""
    return typed if op.phase == "optimizer" and 0 < len(typed) <= MAX_SHOWN else short_call(op)


def _nonfinite(numbers: Mapping[str, Scalar]) -> dict[str, float]:
    return {n: v for n, v in numbers.items() if isinstance(v, float) and not math.isfinite(v)}


def _named(columns: tuple[int, ...]) -> str:
    """`column 2`, `columns 2 and 5`, `columns 2 and 3 more`."""
    if len(columns) == 1:
        return f"column {columns[0]}"
    last = f"{columns[1]}" if len(columns) == 2 else f"{len(columns) - 1} more"
    return f"columns {columns[0]} and {last}"

"""A mean or spread of too few values.

What it catches
    `mean` over no element, `std` or `var` over one element (or none).

Why it hurts
    The sum is divided by a count of 0: the result is NaN.

Example
    loss = per_pixel[mask].mean()      # no pixel is selected

Use instead
    loss = (per_pixel * mask).sum() / mask.sum().clamp(min=1)

When it is fine
    `sum` over nothing is 0. `std(correction=0)` of one element is 0.
"""

from __future__ import annotations

from whynan.diagnosis.makers import SPREADS
from whynan.diagnosis.naming import short_call
from whynan.diagnosis.registry import rule
from whynan.diagnosis.words import called, origin_label, plural, subject
from whynan.model import Evidence, Finding, Fix, OpRecord
from whynan.ops.table import row


@rule("N032", "empty-reduction", "empty_reduction")
def empty_reduction(op: OpRecord, evidence: Evidence) -> Finding | None:
    x = op.operand("self", "input")
    part = (x.slice_stats or x.stats) if x is not None else None
    if op.derived or x is None or part is None:
        return None
    spread = op.name in SPREADS
    correction = op.scalar("correction", "unbiased")
    needed = 1 + int(1 if correction is None else correction) if spread else 1
    ignored = row(op.name).name == "nll_loss" and part.nonfinite == 0
    if part.count >= needed and not ignored:
        return None
    if ignored and part.count:
        return _ignored(op, evidence)
    count = plural(part.count, "value")
    why = (
        " are needed, for it divides by n - 1"
        if needed == 2
        else " is needed"
        if needed == 1
        else " are needed"
    )
    return Finding(
        headline=f"{subject(evidence)} because `{short_call(op)}` was taken over {count}",
        observed=(f"{called(x)} holds {count} there; {needed}{why}",),
        label=origin_label(op),
        culprit=op.inputs.index(x),
        fixes=_fixes(part.count, spread=spread, loads=evidence.around.loads),
    )  # fmt: skip


def _fixes(count: int, *, spread: bool, loads: bool) -> tuple[Fix, ...]:
    if spread and count == 1:
        how = (
            ", or leave a last batch of one out: `DataLoader(..., drop_last=True)`" if loads else ""
        )
        return (
            Fix(kind="drop_last", title=f"one value has no spread: leave the scaling out there{how}"),
            Fix(kind="population_std", title="or use `correction=0` (`unbiased=False`), which is 0 for one value"),
        )  # fmt: skip
    return (
        Fix(kind="guard_count", title="divide a sum by the count, clamped at 1; or skip the term when nothing is selected"),
    )  # fmt: skip


def _ignored(op: OpRecord, evidence: Evidence) -> Finding:
    """A mean over the targets that are not ignored, of which there is none."""
    target, ignore = op.operand("target"), op.scalar("ignore_index")
    stats = target.stats if target is not None else None
    all_ignored = stats is not None and ignore is not None and stats.min == stats.max == ignore
    reason, fixes = "no target counts", _fixes(0, spread=False, loads=evidence.around.loads)
    if all_ignored and stats is not None:
        n = "the only target is" if stats.count == 1 else f"all {stats.count:,} targets are"
        reason, keep = f"{n} {ignore:.0f}, which it ignores", f"target != {ignore:.0f}"
        fixes = (
            Fix(kind="skip_batch", title=f"skip batches without targets: use the loss only if `({keep}).any()`"),
            Fix(kind="guard_count", title=f"or use `reduction=\"sum\"` and divide by `({keep}).sum().clamp(min=1)`"),
        )  # fmt: skip
    return Finding(
        headline=f"{subject(evidence)} because `{short_call(op)}` had nothing to average: {reason}",
        observed=(f"the targets: {stats}",) if stats is not None else (),
        label=origin_label(op),
        culprit=op.inputs.index(target) if target is not None else None,
        fixes=fixes,
    )

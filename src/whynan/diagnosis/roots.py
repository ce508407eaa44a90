"""The cause before the operation where it showed: in the headline, and in what to change first.

Only of an overflow: a value that left a function's domain may have done so in one step, and then the
operation comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from whynan.model import Cause, Evidence, Finding, Fix, number

SMALLER_WEIGHTS = Fix(
    kind="initialise",
    title="give these weights the usual scale: leave the layers as PyTorch makes them, or use `torch.nn.init.kaiming_uniform_`",
)
SCALE_COLUMN = Fix(
    kind="scale_data",
    title="scale that column before training, for example by its mean and its spread",
)
UNSCALED = 30.0  # the usual magnitude of an input that was never scaled
LOOK_AT_ROW = Fix(
    kind="clean_data",
    title="look at that row where the data is prepared: repair it or leave it out, or scale the column if the value is right",
)

MARK_OR_ROW = Fix(
    kind="clean_data",
    title="look at that value where the data are prepared: if it stands for a missing one, leave its row out or fill the gap before anything is computed from it",
)


def with_root(finding: Finding, evidence: Evidence) -> Finding:
    """Of the cause that stands first, if it is one of these."""
    subject, because, what = finding.headline.partition(" because ")
    if finding.mechanism != "overflow" or not because or not finding.causes:
        return finding
    found = _root(finding.causes, evidence)
    if found is None:
        return finding
    root, fix = found
    told = {new.kind for new in fix} | ({"scale_down"} if len(fix) > 1 else set())
    others = tuple(f for f in finding.fixes if f.kind not in told)
    return replace(finding, headline=f"{subject} because {root} ({what})", fixes=(*fix, *others))


def _root(causes: Sequence[Cause], evidence: Evidence) -> tuple[str, tuple[Fix, ...]] | None:
    rates = [r.lr for r in evidence.around.history if r.lr]
    code, odd = causes[0].code, evidence.around.oddity
    unstable = evidence.around.unstable
    if code == "setting" and unstable is not None:
        name, value = unstable.name, number(unstable.value)
        fix = Fix(kind="setting", title=f"lower `{name}`, which is {value}: {unstable.why}")
        return f"training diverged: {name} {value} is too high", (fix,)
    if code == "high_learning_rate" and rates:
        rate = number(rates[-1])
        fix = Fix(kind="lower_lr", title=f"lower the learning rate, which is {rate}")
        root = f"training diverged: learning rate {rate} is too high"
        size = evidence.around.input_size
        if size is None or size <= UNSCALED:
            return root, (fix,)
        title = f"scale the inputs first, which are about {number(size)} in size: each column less its mean, over its spread"
        return f"{root} for inputs that are not scaled", (Fix(kind="standardise", title=title), fix)
    if code == "bad_init":
        return "the initial weights are too large", (SMALLER_WEIGHTS,)
    if code == "bad_data" and odd is not None:
        if odd.what == "outlier":
            what = "the data hold" if odd.earlier else "the batch holds"
            return f"{what} an outlier, {number(odd.value)}", (LOOK_AT_ROW,)
        return f"column {odd.column} of the data is not scaled", (SCALE_COLUMN,)
    value, came_in, _ = causes[0].evidence.partition(" came in with the data")
    if code == "bad_data" and came_in:
        return f"the data hold {value}", (MARK_OR_ROW,)
    return None

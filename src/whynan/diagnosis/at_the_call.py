"""Help where the line that failed is an installed package's: nobody edits that, but the call that leads there."""

from __future__ import annotations

from dataclasses import replace

from whynan.model import Evidence, Finding, Fix, Operand, number
from whynan.source.quotes import short_path

# What would be written in the failing line itself.
IN_THE_LINE = frozenset(
    {"add_eps", "bound_number", "clamp_argument", "clamp_denominator", "clamp_exponent", "double_where",
     "eps_inside", "guard_count", "larger_eps", "normalize", "safe_divisor", "vector_norm"}
)  # fmt: skip
MAX_SHOWN = 60


def at_the_call(finding: Finding, evidence: Evidence, culprit: Operand | None) -> Finding:
    """The user's own call instead of a floor in the library."""
    site = evidence.origin.site
    call = site.caller if site is not None else None
    first = finding.fixes[0].kind if finding.fixes else ""
    if call is None or evidence.change is not None or first not in IN_THE_LINE:
        return finding
    written = f", `{call.expression}`," if 0 < len(call.expression) <= MAX_SHOWN else ""
    title = (
        "the line belongs to an installed package: change what is handed in at "
        f"{short_path(call.file)}:{call.line}{written} or the option that leads there, so that {_not(culprit)}"
    )
    others = tuple(fix for fix in finding.fixes if fix.kind not in IN_THE_LINE)
    return replace(finding, fixes=(Fix(kind="at_the_call", title=title), *others))


def _not(culprit: Operand | None) -> str:
    if culprit is None or culprit.value is None:
        return "this cannot happen here"
    name = f"`{culprit.name}`" if culprit.name else "the operand"
    return f"{name} is not {number(culprit.value)} here"

"""A compiled function that is not finite where the same function in eager mode is.

What it catches
    A step with `torch.compile` that goes bad and, run once more in eager mode, does not. Each compiled
    graph of the step is run again from its recorded inputs by one backend after the other: `eager`,
    `aot_eager`, `aot_eager_decomp_partition`, the program's own. The first one that is not finite where
    eager mode is has the fault; the graph's operations are then evaluated both ways.

Why it hurts
    The formula is right, and every look at it in eager mode says so. Compilers rewrite operations,
    compute some of them again in the backward pass, and fuse them: one digit less is enough.

Example
    gain = torch.log(torch.expm1(x))     # a compiler that makes it exp(x) - 1 loses a small x

Use instead
    @torch.compiler.disable              # workaround: of the function around that line
    def gain(x): ...

When it is fine
    Never. Report it to PyTorch, with the graph's operation and its operands.
"""

from __future__ import annotations

from whynan.diagnosis.naming import short_call
from whynan.diagnosis.registry import rule
from whynan.diagnosis.rules.wrong_kernel import TORCHS
from whynan.diagnosis.words import at, bad_values, plural, subject
from whynan.model import Climb, Evidence, Finding, Fix, OpRecord, Rung, number

STAGES = {
    "eager": "the graph of the function, one operation at a time",
    "aot_eager": "with its gradient traced",
    "aot_eager_decomp_partition": "broken down into elementary operations",
}


@rule("N007", "compiled-only", "compiled_only", kinds=("compiled",), everywhere=True)
def compiled_only(op: OpRecord, evidence: Evidence) -> Finding | None:
    climb = evidence.climb
    if climb is None:
        return None
    return Finding(
        headline=f"{subject(evidence)} because of `torch.compile`: in eager mode the same step stays finite",
        observed=(*_where(op, climb), *_turned(evidence), *(_rung(rung) for rung in climb.rungs)),
        inferred=(_inferred(climb),),
        unknown=() if climb.operations else ("which operation of the graph it is: with all of its values to be seen, the graph is as in eager mode",),
        label=_label(op, climb),
        fixes=_fixes(climb),
    )  # fmt: skip


def _fixes(climb: Climb) -> tuple[Fix, ...]:
    around = Fix(
        kind="uncompiled",
        title="workaround: `@torch.compiler.disable` on the function around that line",
    )
    if climb.operations and not climb.departs:
        return (around,)
    own = climb.turn.name not in (*STAGES, "inductor")
    where = (
        f"to the project that the backend `{climb.turn.name}` comes from"
        if own
        else f"to PyTorch, {TORCHS}"
    )
    return around, Fix(
        kind="report_kernel", title=f"report the fault {where}, with the versions and these numbers"
    )


def _inferred(climb: Climb) -> str:
    if climb.operations and not climb.departs:
        return "no operation is wrong by itself: what is compiled together is rounded less often, and these operands are so close to the edge that it decides"
    return f"the fault is in what `{climb.turn.name}` adds to the stage before: the program's formula is not at fault"


def _label(op: OpRecord, climb: Climb) -> str:
    if not climb.operations:
        return ""
    here = ", in the backward pass" if op.derived else ""
    return f"compiled {number(climb.compiled)}, eager {number(climb.eager)}{here}"


def _where(op: OpRecord, climb: Climb) -> tuple[str, ...]:
    order = f"compiled graph {climb.graph + 1} of {climb.graphs} in the step"
    if not climb.operations:
        return (order,)
    index = op.outputs[0].index if op.outputs else None
    given = [number(o.value) for o in op.inputs if o.value is not None]
    operands = f"from {', '.join(given)} " if given else ""
    phase = "backward" if op.derived else "forward"
    return (
        f"{order}, {phase}, {plural(climb.operations, 'operation')}: `{op.name}` gives {number(climb.compiled)} {operands}compiled, and {number(climb.eager)} in eager mode{at(index)}",
    )  # fmt: skip


def _turned(evidence: Evidence) -> tuple[str, ...]:
    """The operation that makes a non-finite value of it."""
    if not evidence.path:
        return ()
    bad = evidence.path[0]
    of = f"the gradient of `{short_call(bad)}`" if bad.derived else f"`{short_call(bad)}`"
    line = f" on line {bad.site.line}" if bad.site is not None else ""
    return (f"{of}{line} turns it into {bad_values(bad.out)}",)


def _rung(rung: Rung) -> str:
    stage = STAGES.get(rung.name)
    what = f" ({stage})" if stage else " (compiled)"
    bad = f"{plural(rung.bad, 'value')} not finite" if rung.bad else "finite"
    return f"{rung.name}{what}: {bad}"

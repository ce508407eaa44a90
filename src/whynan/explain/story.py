"""From a diagnosis to what a person reads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from whynan.diagnosis.naming import call_of
from whynan.explain.snippet import Row, snippet
from whynan.explain.vocabulary import cause
from whynan.model import Anomaly, Diagnosis, Evidence, Fix, Link, Sample, Site, number
from whynan.ops.table import row
from whynan.source.quotes import short_path
from whynan.voice import visible

SHOWN = {"lift_fresh": "comes in", "entry": "comes in", "set": "loaded", "addmm": "linear"}
KERNELS = ("matmul", "norm", "sub")  # of which each of torch's operators is one form

REMADE = (
    "a DataLoader worker made it; asked for item {} again, in this process, the dataset made the same"
    " bad value"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One claim and its strength: observed, inferred, unknown, path."""

    label: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """One anomaly, ready to be drawn."""

    code: str
    headline: str
    place: str
    rows: tuple[Row, ...]
    facts: tuple[Fact, ...]
    chain: tuple[tuple[str, str, str, str], ...]  # place, operation, value, note
    fixes: tuple[Fix, ...]
    file: str = ""  # the place, in full
    proof: str = ""  # of the first of them
    next: str = ""  # what to type for more


def shown(operator: str) -> str:
    """An operator as people call it: `softmax` for `_softmax`, `matmul` for `bmm`."""
    name = row(operator).name
    known = name if name and (operator.startswith("_") or name in KERNELS) else operator
    return SHOWN.get(known, known)


def no_harm(steps: int, share: float | None = None, silent: Iterable[tuple[str, int]] = ()) -> str:
    """Of a healthy run; a cell or a forward pass has no optimizer steps to count. `share` is the part
    of its time that watching took, `silent` what did no harm and its steps.

    >>> no_harm(0), no_harm(1), no_harm(20_000, 0.0041)
    ('no harm found', 'no harm found in 1 step', 'no harm found in 20,000 steps; watching took about 0.4 % of the time')
    >>> no_harm(400, silent=[("a loss was NaN", 168), ("a loss was NaN", 170)])
    'no harm found in 400 steps; a loss was NaN at step 168 (and 1 more)'
    """
    told = f" in {steps:,} step{'' if steps == 1 else 's'}" if steps else ""
    seen: dict[str, list[int]] = {}
    for what, step in silent:
        seen.setdefault(what, []).append(step)
    for what, at in seen.items():
        told += f"; {what} at step {at[0]}" + (f" (and {len(at) - 1} more)" if at[1:] else "")
    if share is not None:
        some = f"about {100 * share:.1f}" if share >= 0.0005 else "less than 0.1"
        told += f"; watching took {some} % of the time"
    return f"no harm found{told}"


def in_short(found: Iterable[Evidence], error: Exception) -> str:
    """One plain line for each harm, where the report itself cannot be drawn because of an error."""
    lines = []
    for evidence in found:
        site = evidence.origin.site
        began = f"; it began at {site.file}:{site.line} ({evidence.origin.op})" if site else ""
        lines.append(f"whynan: {evidence.subject} went bad at step {evidence.step}{began}\n")
    lines.append(f"whynan: the report could not be drawn: {error!r}\n")
    return visible("".join(lines))


PLAIN = re.compile(
    r"[\w@%+=:,./ '-]+"
)  # no other command can be in it: a recording may be a stranger's


def typed(diagnosis: Diagnosis) -> str:
    """What was typed after `whynan run`, where that is known."""
    command = diagnosis.run.get("command", "").removeprefix("whynan run ")
    return command if PLAIN.fullmatch(command) else ""


def tell(anomaly: Anomaly, command: str = "") -> Story:
    """Choose the words; `command` is the program as it was started."""
    origin, finding = anomaly.origin, anomaly.finding
    site = origin.site
    return Story(
        code=finding.code,
        headline=finding.headline,
        place=_place(site) if site else _seen_at(anomaly),
        file=site.file if site else "",
        rows=tuple(
            snippet(site, finding.label, _note(anomaly), anomaly.evidence.quotes) if site else ()
        ),
        facts=tuple(_facts(anomaly)),
        chain=_rows(anomaly.chain) if site else (),
        fixes=finding.fixes,
        proof=_proof(finding.fixes[0], command, site) if finding.fixes else "",
        next=_next(finding.code, command),
    )


def _next(code: str, command: str) -> str:
    found = [f"`whynan explain {code}`"] if code else []
    found += ["`--html report.html` writes a page"] if command else []
    return "; ".join(found)


LOOKS = ("trace", "look_upstream")  # advice where to look, no change to be tried


def _proof(fix: Fix, command: str, site: Site | None) -> str:
    """What is known of a change, or how to find out."""
    if fix.kind in LOOKS:
        return ""
    if fix.verdict != "not_tried" or fix.evidence != Fix(kind="", title="").evidence:
        return fix.evidence
    if site is not None and short_path(site.file).startswith("In["):
        return "not tested yet"  # there is no script to try it on
    tries = "tries it" if fix.patch else "tries changes"
    return f"not tested yet: `{f'whynan fix {command}'.strip()}` {tries}"


def _place(site: Site) -> str:
    column = "" if site.column is None else f":{site.column + 1}"
    return f"{short_path(site.file)}:{site.line}{column}"


def _seen_at(anomaly: Anomaly) -> str:
    site = anomaly.evidence.sink_site
    return f"seen at {_place(site)}" if site else "the call site is not known"


def _note(anomaly: Anomaly) -> tuple[Site, str] | None:
    """The reason's own line, when it is another line of the same file."""
    for link in reversed(anomaly.chain):
        backward = link.note.endswith("backward")
        if link.role == "reason" and link.site and link.value is not None and not backward:
            name = shown(link.op)
            if name == "comes in":
                return link.site, f"is {number(link.value)}"
            return link.site, f"{name} {'as' if name == 'loaded' else 'gave'} {number(link.value)}"
    return None


def _facts(anomaly: Anomaly) -> list[Fact]:
    evidence, finding, origin = anomaly.evidence, anomaly.finding, anomaly.origin
    later = f", harm at step {evidence.step}" if evidence.step > origin.step else ""
    where = [f"{origin.phase}, step {origin.step}{later}"]
    if evidence.rank is not None:
        where.insert(0, f"rank {evidence.rank}")
    if origin.module:
        where.append(f"module {origin.module}")
    came_in = evidence.origin_kind == "entry"
    if evidence.origin_kind != "unseen":
        where.append("as it came in" if came_in else f"`{call_of(origin)}`")
    facts = [Fact(label=f"cause: {cause(c.code)}", text=c.evidence) for c in finding.causes]
    facts.append(Fact(label="where", text="; ".join(where)))
    if origin.site and origin.site.caller:
        caller = origin.site.caller
        facts.append(Fact(label="called from", text=f"{_place(caller)}: {caller.source}"))
    facts += [Fact(label="observed", text=text) for text in finding.observed]
    if evidence.around.sample is not None:
        label = "inferred" if evidence.around.sample.inferred else "sample"
        facts.append(Fact(label=label, text=told_sample(evidence.around.sample)))
    if evidence.around.remade is not None:
        facts.append(Fact(label="observed", text=REMADE.format(evidence.around.remade)))
    facts += [Fact(label="inferred", text=text) for text in finding.inferred]
    facts += [Fact(label="unknown", text=text) for text in finding.unknown]
    if evidence.incomplete:
        facts.append(Fact(label="unknown", text=evidence.incomplete))
    if evidence.message and evidence.sink == "exception":
        facts.append(Fact(label="raised", text=f"{evidence.subject}: {evidence.message}"))
    facts += [Fact(label="elsewhere", text=text) for text in evidence.ranks]
    return facts


def told_sample(sample: Sample) -> str:
    """Which sample it was, in words."""
    known = ""
    if sample.dataset_index is not None and sample.table is not None:
        listed = sample.table.startswith("`")
        known = f", {'item' if listed else 'row'} {sample.dataset_index} of {sample.table}"
    elif sample.dataset_index is not None:
        known = f", item {sample.dataset_index} of the dataset"
    known += f" ({sample.called})" if sample.called else ""
    known += f", in `{sample.column}`" if sample.column else ""
    if sample.is_alone:
        return f"it was computed from{known.removeprefix(',')}"
    if sample.size == 1:
        return f"the batch is one sample{known}"
    if sample.inferred:
        which = f"sample {sample.index} of the {sample.size} in the batch{known}"
        return f"it is {which}: without it the step stays healthy"
    if sample.bad == 1:
        return f"only sample {sample.index} of the {sample.size} in the batch{known}"
    return f"{sample.bad} of the {sample.size} samples in the batch, the first of them sample {sample.index}{known}"


def _rows(chain: Sequence[Link]) -> tuple[tuple[str, str, str, str], ...]:
    """Every place with its file, where they are in several."""
    several = len({link.site.file for link in chain if link.site is not None}) > 1
    return tuple(_row(link, several=several) for link in chain)


def _row(link: Link, *, several: bool) -> tuple[str, str, str, str]:
    place = ""
    if link.site is not None:
        file = f"{short_path(link.site.file)}:" if several else "line "
        place = f"{file}{link.site.line}"
    value = "" if link.value is None else number(link.value)
    op = shown(link.op)
    marks = {"origin": "origin", "sink": link.note}
    return place, op, value, marks.get(link.role, link.note)

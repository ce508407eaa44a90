"""`whynan fix`: run the program, find a change that works, show it, and write it if asked."""

from __future__ import annotations

import itertools
import os
import textwrap
from dataclasses import dataclass, replace
from pathlib import Path

from whynan import voice
from whynan.errors import UsageError
from whynan.explain.story import tell, told_sample
from whynan.model import Diagnosis, Fix
from whynan.repair import patches
from whynan.repair.case import Candidate
from whynan.repair.originals import Originals
from whynan.report import html, json_report, remedy, terminal
from whynan.run.program import Program, own_part, program_root
from whynan.source.quotes import short_path
from whynan.trying.guilty import Bisection, with_sample
from whynan.trying.search import Search, compiled_too
from whynan.trying.trial import Ran, Trial, run
from whynan.trying.verdict import Verdict

BUDGET_S = 120.0
UNDO = "whynan-fix.patch"
WIDTH = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class FixOptions:
    """How far to go."""

    apply: bool = False
    json: Path | None = None
    html: Path | None = None
    budget_s: float = BUDGET_S
    save_batch: Path | None = None
    quiet: bool = False
    told: bool = False  # the report itself was shown already


def fix(program: Program, options: FixOptions) -> int:
    """The exit code: 0 with a verified change, 3 without one, the program's own when healthy."""
    _check(program, options)
    originals = Originals(program_root(program), own_part(program).target)
    batch = str(options.save_batch.absolute()) if options.save_batch is not None else None
    trial = Trial(program=program, save_batch=batch)
    ran = compiled_too(run(trial, quiet=options.quiet), trial, run)
    before = ran.diagnosis
    if before is None or not before.anomalies:
        return _healthy(ran, options)
    return repair(program, before, options, originals)


def repair(program: Program, before: Diagnosis, options: FixOptions, originals: Originals) -> int:
    """Find a change for a failure that was seen: 0 with a verified one, else 3.

    `originals` are the files as they were before the program ran into it.
    """
    search = Search(
        program=program,
        before=before,
        run=run,
        budget_s=options.budget_s,
        originals=originals,
        tell=_progress,
    )
    try:
        search.go()
    except KeyboardInterrupt:
        _say("interrupted; what was tried so far:")
    before = _with_guilty_sample(program, before, options)
    fixes = search.fixes()
    after = with_fixes(before, fixes)
    _show(after, told=options.told)
    _write(after, options)
    if search.found is None:
        _say(_why_none(fixes))
        _say(f"`whynan whatif {_typed(program)}` shows which changes from outside it survives")
        return 3
    if options.apply:
        _apply(originals, search.found.candidate)
    else:
        how = "`whynan fix --apply`" if options.told else "`--apply`"
        _say(f"nothing was written; {how} writes this change")
    return 0


def _with_guilty_sample(program: Program, before: Diagnosis, options: FixOptions) -> Diagnosis:
    """Beside the search for a change: no proof of a change is given up for it."""
    bisection = Bisection(
        program=program, before=before, run=run, budget_s=options.budget_s / 2, tell=_say
    )
    try:
        sample = bisection.find()
    except KeyboardInterrupt:
        return before
    if sample is None:
        if bisection.tries:
            why = "time was up before one was found" if bisection.gave_up else "no single sample"
            _say(f"  {why}")
        return before
    _say(f"  {told_sample(sample)}")
    return with_sample(before, sample)


def _check(program: Program, options: FixOptions) -> None:
    if not program.is_module and not os.path.exists(program.target):
        raise UsageError(f"can't open {program.target!r}: no such file")
    files = {"--json": options.json, "--html": options.html, "--save-batch": options.save_batch}
    for name, path in files.items():
        if path is not None and not path.absolute().parent.is_dir():
            raise UsageError(f"{name} {path}: the folder does not exist")


def _healthy(ran: Ran, options: FixOptions) -> int:
    if ran.diagnosis is not None:
        _write(ran.diagnosis, options)
        if ran.diagnosis.outcome == "clean":
            _say(f"no harm in {ran.diagnosis.steps} steps; nothing to fix")
        else:
            _say("the program failed, but not because of a non-finite value")
    return ran.code


def with_fixes(diagnosis: Diagnosis, fixes: tuple[Fix, ...]) -> Diagnosis:
    """The first anomaly's suggestions give way to what was tried."""
    first = diagnosis.anomalies[0]
    if fixes:
        first = replace(first, finding=replace(first.finding, fixes=fixes))
    return replace(diagnosis, anomalies=(first, *diagnosis.anomalies[1:]))


def _show(diagnosis: Diagnosis, *, told: bool) -> None:
    first = diagnosis.anomalies[0]
    bare = replace(first, finding=replace(first.finding, fixes=()))
    home = short_path(first.origin.site.file) if first.origin.site else None
    width = terminal.width_of(voice.columns())
    change = remedy.draw(first.finding.fixes, home, width)
    lines = change if told else terminal.draw([tell(bare)], diagnosis.notes, change, width)
    while lines and not lines[-1].plain:
        lines.pop()
    voice.report(terminal.styled(lines, voice.is_on_terminal()))


def _write(diagnosis: Diagnosis, options: FixOptions) -> None:
    """What was found out is worth more than the files."""
    for path, write in ((options.json, json_report.write), (options.html, html.write)):
        if path is None:
            continue
        try:
            write(diagnosis, path)
        except Exception as error:
            _say(f"could not write {path}: {error}")


def _progress(candidate: Candidate, verdict: Verdict | None) -> None:
    if verdict is None:
        text = f"trying {candidate.kind}: {candidate.title}"
        _say("\n".join(textwrap.wrap(text, WIDTH - 8, subsequent_indent=" " * 10)))
    else:
        _say(f"  {verdict.verdict}")


def _typed(program: Program) -> str:
    return " ".join(["-m"] * program.is_module + [program.target])


def _why_none(fixes: tuple[Fix, ...]) -> str:
    if any(f.verdict == "verified" for f in fixes):
        return "the source shows no place for this change; it is to be made by hand"
    if not fixes or all(f.patch is None for f in fixes):
        return "no change to the source is known for such a failure; nothing was tried"
    return "no change was verified"


def _apply(originals: Originals, candidate: Candidate) -> None:
    """The way back is on disk before anything is written."""
    undo = _keep(patches.unified_bytes(originals, candidate.texts))
    try:
        written = patches.apply(originals, candidate.texts)
    except BaseException:
        undo.unlink()
        raise
    _say(f"wrote {', '.join(written)}; undo with: patch -R -p1 < {undo}")


def _keep(undo: bytes) -> Path:
    """Beside those of earlier changes."""
    for number in itertools.count(1):
        path = Path(UNDO if number == 1 else f"-{number}".join(os.path.splitext(UNDO)))
        try:
            with open(path, "xb") as stream:
                stream.write(undo)
        except FileExistsError:
            continue
        except OSError as error:
            raise UsageError(
                f"{path}, which would undo the change, cannot be written "
                f"({error.strerror}); nothing was written"
            ) from error
        return path
    raise AssertionError("unreachable")


def _say(text: str) -> None:
    voice.say(text)

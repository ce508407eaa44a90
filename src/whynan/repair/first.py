"""The first change that an expert would try, named by a report before anybody has run it."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

from whynan import voice
from whynan.diagnosis.engine import explain_evidence
from whynan.model import ADVICE, Anomaly, Evidence, Fix
from whynan.recording import Recording
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.originals import Originals
from whynan.repair.patches import unified
from whynan.repair.rewrites import answers_cause, propose
from whynan.repair.sentences import said
from whynan.source.quotes import short_path, sites_in

MOST = 8  # harms of a run that are looked at
# They make a number bearable that should not be there: tried, but not recommended.
HIDING = ("clamp_exponent", "finite_scores", "drop_samples", "np_maximum")
# What a rule says where the cause is known: another place than the line that failed.
ELSEWHERE = frozenset({"clean_data", "clean_column", "setting", "earlier_checkpoint", "skip_batch"})


class FirstChanges:
    """Those of a run, each looked for once."""

    def __init__(self, root: str | None = None) -> None:
        self._root = root
        self._known: dict[int, tuple[Evidence, Fix | None]] = {}

    def beside(self, recording: Recording) -> Recording:
        """With the change of each harm."""
        return replace(recording, evidence=tuple(map(self._changed, recording.evidence)))

    def _changed(self, evidence: Evidence) -> Evidence:
        key = id(evidence.origin)
        if key not in self._known and len(self._known) < MOST:
            self._known[key] = evidence, self._found(evidence)
        change = self._known[key][1] if key in self._known else None
        return replace(evidence, change=change) if change is not None else evidence

    def _found(self, evidence: Evidence) -> Fix | None:
        try:
            return first_change(evidence, self._root or _root())
        except Exception as error:  # the report is worth more than a change
            voice.say(f"the source could not be searched for a change: {error!r}")
            return None


def first_change(evidence: Evidence, root: str) -> Fix | None:
    """None where the rule's own words are better."""
    case = Case(explain_evidence(evidence), {}, root, Originals())
    if not _is_as_it_ran(case):
        return None
    candidates = propose(case)
    first = candidates[0] if candidates else None
    if first is not None and first.tier is Tier.EXACT:
        return _told(case, first)
    if any(fix.kind in ELSEWHERE for fix in case.anomaly.finding.fixes[:1]):
        return None
    if text := said(case):
        return Fix(kind=ADVICE, title=text, evidence="")
    return (
        _told(case, first) if first is not None and _is_recommended(first, case.anomaly) else None
    )


def _is_recommended(candidate: Candidate, anomaly: Anomaly) -> bool:
    if not candidate.texts or {*candidate.kind.split("+")} & {*HIDING}:
        return False
    return candidate.tier is Tier.GUARD or answers_cause(candidate, anomaly)


def _told(case: Case, candidate: Candidate) -> Fix | None:
    if not candidate.texts:
        return None
    patch = unified(case.originals, candidate.texts)
    return Fix(kind=candidate.kind, title=candidate.title, patch=patch)


def _is_as_it_ran(case: Case) -> bool:
    """Whether the files still say what was seen to run: one may have been edited since."""
    evidence = case.anomaly.evidence
    seen = {(f, n): text for f, lines in evidence.quotes.items() for n, text in lines.items()}
    for site in sites_in((evidence.origin, evidence.path, evidence.sink_site)):
        seen.setdefault((short_path(site.file), site.line), site.source)
    for (file, number), text in seen.items():
        if text.strip() and case.is_own(file):
            lines = (case.originals.text(file) or "").splitlines()
            if number > len(lines) or text.strip() not in lines[number - 1]:
                return False
    return True


def _root() -> str:
    """Of a program that is not run by whynan: the folder it is in, or the working directory."""
    here = os.getcwd()
    script = getattr(sys.modules.get("__main__"), "__file__", None) or here
    folder = os.path.dirname(os.path.abspath(script))
    beside = script.endswith(".py") and "site-packages" not in folder
    return folder if beside and os.path.commonpath([folder, here]) != here else here

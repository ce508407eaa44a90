"""The first change that an expert would try, named by a report before anybody has run it."""

from __future__ import annotations

import linecache
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
from whynan.source.cells import cell_name
from whynan.source.quotes import short_path, sites_in

MOST = 8  # harms of a run that are looked at
MOST_TEXT = 250_000  # characters of source, which take about a second: the report is waited for
# They make a number bearable that should not be there: tried, but not recommended.
HIDING = frozenset({"clamp_exponent", "finite_scores", "drop_samples"})
# Words of a rule that name another place than the line that failed: a clamp there would hide it.
ELSEWHERE = frozenset(
    {"clean_data", "clean_column", "scale_data", "initialise", "setting", "earlier_checkpoint",
     "skip_batch"}
)  # fmt: skip
# Words of a rule for another form of the formula, better than a bound or a wider type for this one.
FORMS = frozenset(
    {"log_softmax", "logsigmoid", "logits_form", "logsumexp", "log_space", "slogdet",
     "stable_form", "positive_form", "double_where", "end_above_0"}
)  # fmt: skip
BOUNDS = ("clamp_argument", "clamp_denominator", "logit_eps", "cast_")


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
    originals = Originals(most=MOST_TEXT)
    for site in sites_in(evidence):
        if cell_name(site.file) and (lines := linecache.getlines(site.file)):
            originals.know(site.file, "".join(lines))
    case = Case(explain_evidence(evidence), {}, root, originals)
    if not _is_as_it_ran(case):
        return None
    words = next(iter(case.anomaly.finding.fixes), None)
    first = next(iter(propose(case)), None)
    if first is not None and _is_better(first, words, case.anomaly):
        return _told(case, first, words)
    if words is not None and words.kind in ELSEWHERE:
        return None
    text = said(case)
    return Fix(kind=ADVICE, title=text, evidence="") if text is not None else None


def _is_better(candidate: Candidate, words: Fix | None, anomaly: Anomaly) -> bool:
    """Than what the rule says."""
    said, kind = words.kind if words is not None else "", candidate.kind
    other = said in FORMS | ELSEWHERE
    if not candidate.texts or kind in HIDING or (other and kind.startswith(BOUNDS)):
        return False
    if said == "setting" and kind == "clamp_base":
        return True  # the exponent is the modeller's choice
    if candidate.tier is Tier.TRAINING:
        named = (said, "standardise", "kaiming_init", "lower_momentum", "lower_weight_decay")
        return answers_cause(candidate, anomaly) and kind in named
    return candidate.tier is Tier.EXACT or said not in ELSEWHERE


def _told(case: Case, candidate: Candidate, words: Fix | None) -> Fix:
    title, patch = candidate.title, unified(case.originals, candidate.texts)
    if candidate.kind == "lower_lr" and words is not None:
        title = f"{words.title}; a tenth of it is a beginning"
    return Fix(kind=candidate.kind, title=title, patch=patch)


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

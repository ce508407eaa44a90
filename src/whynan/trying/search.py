"""Find a change that works: propose, run each in a fresh process, combine where needed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

from whynan.model import ADVICE, Diagnosis, Fix
from whynan.recording import EAGERLY
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.originals import Originals
from whynan.repair.patches import unified
from whynan.repair.rewrites import propose
from whynan.repair.rewrites.reading import missing_mark
from whynan.repair.sentences import said
from whynan.run.program import Program, program_root
from whynan.trying import reference
from whynan.trying.allowance import Allowance
from whynan.trying.trial import Ran, Trial
from whynan.trying.verdict import (
    MARGIN_STEPS,
    TRAINING_MARGIN_STEPS,
    Verdict,
    judge,
    steps_to_run,
)

ROUNDS = 3
SECOND_TRIES = 4  # candidates for a fault that a first change uncovered
# Kinds of changes that are meant to act near a singular point only.
BOUNDS = (
    "clamp",
    "raise_eps",
    "default_eps",
    "positive_",
    "add_eps",
    "eps_inside",
    "finite_",
    "np_maximum",
    "np_divisor",
    "smooth_",
    "separate_",
    "divisor_",
)
# A choice of the modeller's, as its own eps is: float64 is no reference for it.
SETTINGS = (
    "raise_eps",
    "default_eps",
    "positive_floor",
    "softplus_output",
    "schedule_floor",
    "count_from_1",
    "positive_setting",
)
# They make a number bearable that should not be there.
COVERS = ("clamp_", "np_maximum", "clip_grad", "lower_lr")
FLOOR = re.compile(r"([\w.]+|\([^()]*\))\.clamp\(min=([\d.e-]+)\)")
MOST_TRIALS = 16  # a change that needs more guessing than that is none an expert would make
LEAST_S = 5.0  # no trial is started with less time than this


class Runner(Protocol):
    """Runs a trial; the real one starts a fresh process."""

    def __call__(self, trial: Trial, *, limit_s: float | None = None) -> Ran: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One candidate and what became of it."""

    candidate: Candidate
    verdict: Verdict
    seconds: float = 0.0

    def as_fix(self, originals: Originals) -> Fix:
        return Fix(
            kind=self.candidate.kind,
            title=self.candidate.title,
            patch=unified(originals, self.candidate.texts) or None,
            verdict=self.verdict.verdict,
            evidence=self.verdict.evidence,
        )


def compiled_too(ran: Ran, trial: Trial, run: Runner) -> Ran:
    """Recorded, compiled functions run eagerly: what stayed finite so is run as it is meant."""
    seen = ran.diagnosis
    if seen is None or seen.anomalies or EAGERLY not in seen.notes:
        return ran
    return run(replace(trial, mode="auto"))


@dataclass
class Search:
    """One search; `found` is the first change that was verified."""

    program: Program
    before: Diagnosis
    run: Runner
    budget_s: float
    originals: Originals = field(default_factory=Originals)
    tell: Callable[[Candidate, Verdict | None], None] = lambda candidate, verdict: None
    tried: list[Tried] = field(default_factory=list)
    found: Tried | None = None

    def __post_init__(self) -> None:
        self._allowance = Allowance(self.budget_s)
        self._root = program_root(self.program)
        self._answered = ""
        self._weak: Tried | None = None
        self._reference: tuple[dict[int, float] | None] | None = None

    def go(self) -> Search:
        """Single changes first, then those that answer what a first change uncovered."""
        first = propose(Case(self.before.anomalies[0], {}, self._root, self.originals))
        exact = [c for c in first if c.tier is Tier.EXACT]
        rest = [c for c in first if c not in exact]
        guards = [i for i, c in enumerate(rest) if c.tier is Tier.GUARD]
        training = rest[max(guards) + 1 :] if guards else rest
        uncovered = self._rounds(exact, [], most=Tier.EXACT)
        # A second guard costs one trial; another course of the training is a guess, of many.
        uncovered = self._rounds(rest[: len(rest) - len(training)], uncovered, most=Tier.GUARD)
        # Another course answers a failure of the training, not what a guard uncovered.
        most = Tier.TRAINING if any(c.tier is Tier.TRAINING for c in training) else Tier.GUARD
        self._rounds(training, uncovered, most=most)
        self.found = self.found or self._weak
        return self

    def _rounds(self, level: list[Candidate], uncovered: list[Tried], most: Tier) -> list[Tried]:
        """Try a level, then what answers the failures that it uncovered, and so on."""
        everything = list(uncovered)
        for round_ in range(1, ROUNDS + 1):
            new = self._all_of(level)
            everything += new
            uncovered = [*uncovered, *new]
            done = self.found is not None or self._weak is not None
            if done or not uncovered or round_ == ROUNDS:
                break
            level = []
            for tried in uncovered:
                anomaly = tried.verdict.uncovered
                assert anomaly is not None
                case = Case(anomaly, tried.candidate.texts, self._root, self.originals)
                answers = [
                    c
                    for c in propose(case)
                    if c.tier <= most and (c.kind != tried.candidate.kind or c.tier < Tier.TRAINING)
                ]
                level += [_combined(tried.candidate, c) for c in answers[:SECOND_TRIES]]
            fresh = (c for c in level if c not in self._seen() and not _has_two_floors(c))
            level = sorted(fresh, key=lambda c: c.tier)
            uncovered = []
        return everything

    def _seen(self) -> list[Candidate]:
        return [t.candidate for t in self.tried]

    def fixes(self) -> tuple[Fix, ...]:
        """What was found comes first, then the others in the order of trying."""
        rest = [t for t in self.tried if t is not self.found]
        found = [self.found] if self.found else []
        return (*(t.as_fix(self.originals) for t in found + rest), *self._advice())

    def _advice(self) -> Iterator[Fix]:
        """Where nothing was verified: the sentence that an expert would say."""
        case = Case(self.before.anomalies[0], {}, self._root, self.originals)
        text = said(case) if self.found is None else None
        if text is not None:
            yield Fix(kind=ADVICE, title=text, evidence="no change of a line mends this")

    def _all_of(self, candidates: list[Candidate]) -> list[Tried]:
        """Try them in order until one is verified; what uncovered another failure comes back."""
        uncovered = []
        for candidate in candidates:
            left = self._allowance.left
            if self.found is not None:
                self._leave(candidate, "an earlier change was verified")
            elif self._answered and candidate.tier is Tier.TRAINING:
                self._leave(
                    candidate,
                    f"{self._answered} is what helps, and the source shows no place for it",
                )
            elif _invents(candidate, self.before.anomalies[0].evidence.sink):
                self._leave(candidate, "the value is only shown, and would be the bound itself")
            elif (mark := missing_mark(self.before.anomalies[0])) and _covers(candidate):
                self._leave(
                    candidate,
                    f"{mark} stands for a missing value: there is nothing to learn from it",
                )
            elif len([t for t in self.tried if t.seconds]) >= MOST_TRIALS:
                self._leave(candidate, f"{MOST_TRIALS} changes were tried before it")
            elif left < LEAST_S:
                self._leave(candidate, f"the {self.budget_s:g} s for trying were used up")
            else:
                tried = self._try(candidate, left)
                if tried.verdict.uncovered is not None:
                    uncovered.append(tried)
        return uncovered

    def _try(self, candidate: Candidate, left_s: float) -> Tried:
        self.tell(candidate, None)
        margin = TRAINING_MARGIN_STEPS if candidate.tier is Tier.TRAINING else MARGIN_STEPS
        first = self.before.anomalies[0]
        failed_at = _failed_at(self.before)
        trial = Trial(
            program=self.program,
            texts=candidate.texts,
            max_steps=steps_to_run(failed_at, margin=margin),
            enough_steps=steps_to_run(failed_at),
            finite_from=failed_at,
            intervention=candidate.intervention,
            rank=self.before.anomalies[0].evidence.rank,
            mode="guard"
            if first.finding.mechanism == "compiled_only" or candidate.finer
            else "trace",
        )
        ran = self._run(trial, left_s)
        verdict = judge(
            ran,
            self.before,
            exact=candidate.tier is Tier.EXACT,
            bound=_is_bound(candidate),
            training=candidate.tier is Tier.TRAINING,
        )
        if (
            verdict.verdict == "verified"
            and candidate.tier is Tier.GUARD
            and not {*candidate.kind.split("+")} & {*SETTINGS}
            and not candidate.kind.startswith("drop_")  # other data have other losses
        ):
            verdict = self._compared(verdict, ran)
        if verdict.verdict == "verified" and candidate.finer is not None:
            few = failed_at + reference.COMPARED
            half = replace(trial, texts=candidate.finer, max_steps=few)
            finer = self._run(half, self._allowance.left)
            apart = reference.unsettled(ran.diagnosis, finer.diagnosis, failed_at)
            verdict = replace(verdict, verdict="failed", evidence=apart) if apart else verdict
        tried = Tried(candidate=candidate, verdict=verdict, seconds=ran.seconds)
        self.tried.append(tried)
        if verdict.verdict == "verified" and candidate.texts and verdict.is_weak:
            self._weak = self._weak or tried  # another rate may teach it more
        elif verdict.verdict == "verified" and candidate.texts:
            self.found = tried
        elif verdict.verdict == "verified":
            self._answered = candidate.kind  # done from outside
        self.tell(candidate, verdict)
        return tried

    def _run(self, trial: Trial, left_s: float) -> Ran:
        ran = self.run(trial, limit_s=left_s)
        self._allowance.spend(ran)
        return ran

    def _compared(self, verdict: Verdict, ran: Ran) -> Verdict:
        """Against the same program in float64, where that does not fail."""
        assert ran.diagnosis is not None
        truth = self._truth()
        wrong = reference.away(ran.diagnosis, truth) if truth is not None else None
        if wrong is not None:
            return replace(verdict, verdict="failed", evidence=wrong)
        return verdict

    def _truth(self) -> dict[int, float] | None:
        """One more run, for the first guard that is finite."""
        left = self._allowance.left
        if self._reference is None and reference.is_wanted(self.before.anomalies[0]):
            failed_at = _failed_at(self.before)
            trial = Trial(
                program=self.program,
                max_steps=failed_at + reference.COMPARED,
                finite_from=failed_at,
                intervention="reference",
            )
            self._reference = (reference.losses(self._run(trial, left), self.before),)
        return self._reference[0] if self._reference is not None else None

    def _leave(self, candidate: Candidate, why: str) -> None:
        verdict = Verdict(verdict="not_tried", evidence=f"not tried: {why}")
        self.tried.append(Tried(candidate=candidate, verdict=verdict))


def _failed_at(before: Diagnosis) -> int:
    """The step to be passed. NumPy knows none: what it showed was seen when the program ended."""
    first = before.anomalies[0]
    shown = first.evidence.sink == "observed" and first.origin.op.startswith("array.")
    return max(first.evidence.step, before.steps) if shown else first.evidence.step


def _is_bound(candidate: Candidate) -> bool:
    return any(part.startswith(BOUNDS) for part in candidate.kind.split("+"))


def _invents(candidate: Candidate, sink: str) -> bool:
    """Whether a number would be made up that is only shown: the bound itself."""
    return sink in ("observed", "output") and "clamp_exponent" in candidate.kind.split("+")


def _has_two_floors(candidate: Candidate) -> bool:
    """The same quantity kept above one number here and above another there."""
    floors: dict[str, set[str]] = {}
    for text in candidate.texts.values():
        for quantity, floor in FLOOR.findall(text):
            floors.setdefault(quantity, set()).add(floor)
    return any(len(different) > 1 for different in floors.values())


def _covers(candidate: Candidate) -> bool:
    """Whether it would go on with a number that is no measurement."""
    return any(part.startswith(COVERS) for part in candidate.kind.split("+"))


def _both(first: str, second: str) -> str:
    """Two titles in one sentence."""
    if first.endswith(second):
        return f"{second}, in each place"
    return f"{first}, then {second}"


def _combined(first: Candidate, second: Candidate) -> Candidate:
    return replace(
        second,
        kind=f"{first.kind}+{second.kind}",
        title=_both(first.title, second.title),
        tier=Tier(max(first.tier, second.tier)),
        intervention=first.intervention or second.intervention,
    )

"""Which sample of the batch? Where its rows do not show it, run the step with parts left out.

A statistic over the batch spreads one sample's fault over all of them. The program is run again with
some samples missing from the failing batch: the guilty one is among those without which the step
stays healthy.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from whynan.model import Anomaly, Diagnosis, Fetch, Sample
from whynan.run.program import Program
from whynan.trying.search import LEAST_S, Runner
from whynan.trying.trial import Drop, Trial

TRIES = 14  # enough for a batch of 4096
# These are faults of the whole training; a sample more or less only shifts them.
ELSEWHERE = frozenset({"high_learning_rate", "exploding_gradients", "bad_init", "empty_mask"})
UNRELATED = frozenset({"nonfinite_data", "uninitialised_memory", "nan_literal", "opaque"})


@dataclass
class Bisection:
    """One search for the sample; `find` gives it only if the step was seen healthy without it."""

    program: Program
    before: Diagnosis
    run: Runner
    budget_s: float
    tell: Callable[[str], None] = lambda text: None
    tries: int = 0
    _known: dict[frozenset[int], bool | None] = field(default_factory=dict)

    def find(self) -> Sample | None:
        fetch = fetch_to_search(self.before.anomalies[0])
        if fetch is None or self.before.anomalies[0].evidence.rank is not None:
            return None  # of several ranks, the others have batches of that number, too
        self._deadline = time.monotonic() + self.budget_s
        self.tell(f"leaving out samples of the batch of {fetch.size} to see which one it is")
        guess = self._odd_row(fetch.size)
        row = guess if guess is not None else self._bisected(fetch.size)
        if row is None:
            return None
        known = fetch.indices[row] if fetch.indices is not None else None
        return Sample(index=row, size=fetch.size, dataset_index=known, inferred=True)

    @property
    def gave_up(self) -> bool:
        """Whether a trial told nothing, so that there may be a guilty sample all the same."""
        return None in self._known.values()

    def _odd_row(self, size: int) -> int | None:
        """A value far outside its column makes its sample the first suspect."""
        odd = self.before.anomalies[0].evidence.around.oddity
        if odd is None or odd.row is None or odd.row >= size:
            return None
        other = (odd.row + size // 2) % size
        heals = self._healthy_without(range(odd.row, odd.row + 1))
        if not heals or self._healthy_without(range(other, other + 1)) is not False:
            return None
        return odd.row

    def _bisected(self, size: int) -> int | None:
        half = size // 2
        first, second = range(half), range(half, size)
        heals = self._healthy_without(first), self._healthy_without(second)
        if heals not in ((True, False), (False, True)):
            return None  # in both halves or in neither: not the fault of one sample
        suspects = first if heals[0] else second
        # The other half has shown that leaving out just anything does not help.
        while len(suspects) > 1:
            half = len(suspects) // 2
            heals_first = self._healthy_without(suspects[:half])
            if heals_first is None:
                return None
            suspects = suspects[:half] if heals_first else suspects[half:]
        return suspects[0] if self._healthy_without(suspects) else None

    def _healthy_without(self, rows: range) -> bool | None:
        """None: nothing was learnt, because time is up or the program ended otherwise."""
        key = frozenset(rows)
        if key not in self._known:
            self._known[key] = self._tried(rows)
        return self._known[key]

    def _tried(self, rows: range) -> bool | None:
        left = self._deadline - time.monotonic()
        if left < LEAST_S or self.tries == TRIES:
            return None
        self.tries += 1
        first = self.before.anomalies[0].evidence
        fetch = first.around.fetch
        assert fetch is not None
        drop = Drop(fetch=fetch.number, size=fetch.size, rows=tuple(rows))
        trial = Trial(
            program=self.program, drop=drop, max_steps=first.step + 1, finite_from=first.step
        )
        after = self.run(trial, limit_s=left).diagnosis
        if after is None or (after.outcome == "crashed" and not after.anomalies):
            return None
        return not any(a.evidence.step <= first.step for a in after.anomalies)


def fetch_to_search(anomaly: Anomaly) -> Fetch | None:
    """The failing batch, if it came from a DataLoader and a single sample can be at fault."""
    around = anomaly.evidence.around
    causes = {cause.code for cause in anomaly.finding.causes}
    if around.sample is not None or around.fetch is None or around.fetch.size < 4:
        return None
    if around.oddity is not None and around.oddity.what == "unscaled":
        return None  # a column of every sample
    if anomaly.finding.mechanism in UNRELATED or causes & ELSEWHERE:
        return None
    return around.fetch if anomaly.origin.phase in ("forward", "backward", "optimizer") else None


def with_sample(diagnosis: Diagnosis, sample: Sample) -> Diagnosis:
    """The same diagnosis, with the first anomaly's sample."""
    first = diagnosis.anomalies[0]
    around = replace(first.evidence.around, sample=sample)
    first = replace(first, evidence=replace(first.evidence, around=around))
    return replace(diagnosis, anomalies=(first, *diagnosis.anomalies[1:]))

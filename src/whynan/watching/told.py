"""What was told of a program so far, and to whom."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from whynan.errors import StopRun
from whynan.harm.ledger import Ledger, Sign
from whynan.model import Evidence
from whynan.record.recorder import Recorder
from whynan.watching.trials import Trials

How = Literal["live", "rewind", "body", "call"]


class Teller(Protocol):
    """Who is told; either of the first two may raise to leave the program."""

    def found(self, evidence: Evidence, how: How) -> None: ...
    def unexplained(self, sign: Sign) -> None: ...
    def stepped(self, step: int) -> None: ...
    def failed(self, error: BaseException) -> None: ...


@dataclass(frozen=True, slots=True)
class Explained:
    """The proof of a sign whose origin was seen."""

    evidence: Evidence
    how: How


class Told:
    """Each fault once; of the trials of a search, not before it is known that none is left."""

    def __init__(self, teller: Teller, recorder: Recorder, ledger: Ledger, trials: Trials) -> None:
        self.teller = teller
        self.ledger = ledger
        self.trials = trials
        self.has_begun = False
        self.evidence: list[Evidence] = []
        self.skipped: list[int] = []  # steps
        self.later: set[int] = set()  # harmful steps after the reported one
        self._recorder = recorder

    def passes_over(self, counted: Sequence[Sign] = ()) -> bool:
        """Whether this need not be looked into: the trial of a search that the program is in has come to
        harm already, or does so now where one trial's harm is explained."""
        trial = self.trials.current() if self.ledger.searches else None
        if trial is None or self.has_begun:
            return False
        first = self.ledger.first_lost(trial.search)
        if counted and first is not None and not self.ledger.is_lost(trial.search):
            if counted[0].sink != "parameter" and self.trials.began_spoilt():
                self._is_no_search(first)
                return True
            self.ledger.trial_lost(trial.search, counted[0])
        return self.ledger.is_lost(trial.search)

    def _is_no_search(self, first: Sign) -> None:
        """A schedule that makes an optimizer for each of its rates goes on with what it has spoilt."""
        self.trials.active = False
        if isinstance(first.proof, Explained):
            self.found(first.proof.evidence, first.proof.how)
        else:
            self.unexplained(first)

    def _is_left_to_the_search(self, sign: Sign) -> bool:
        trial = None if self.has_begun else self.trials.current()
        if trial is not None:
            self.ledger.trial_lost(trial.search, sign, ends_so=trial.ends_so)
        return trial is not None

    def knows(self, evidence: Evidence) -> bool:
        return _fault(evidence) in map(_fault, self.evidence)

    def completed(self, evidence: Evidence) -> Evidence:
        """The first harm with all that is to be known of it, while the recorder has it."""
        return evidence if self.evidence else self._recorder.complete(evidence)

    def found(self, evidence: Evidence, how: How) -> None:
        """Harm whose origin was seen."""
        proof = Explained(evidence, how)
        told = Sign(sink=evidence.sink, subject=evidence.subject, step=evidence.step, proof=proof)
        if self._is_left_to_the_search(told):
            return
        self.has_begun = True
        self.evidence.append(evidence)
        self._tell(self.teller.found, evidence, how)

    def unexplained(self, sign: Sign) -> None:
        """Harm whose origin was not seen; after a report, it is what that one told of."""
        if not self.has_begun and not self._is_left_to_the_search(sign):
            self.has_begun = True
            self._tell(self.teller.unexplained, sign)

    def _tell(self, tell: Callable[..., None], *what: Any) -> None:
        try:
            tell(*what)
        except StopRun:
            self._recorder.tracer.stopping = True  # every thread leaves at its next operation
            raise


def _fault(evidence: Evidence) -> tuple[object, ...]:
    """What two harms of the same fault have in common."""
    site = evidence.origin.site
    return (site and (site.file, site.line, site.column), evidence.origin.op)

"""What was told of a program so far, and to whom."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol

from whynan.errors import StopRun
from whynan.harm.ledger import Sign
from whynan.model import Evidence
from whynan.record.recorder import Recorder

How = Literal["live", "rewind", "body", "call"]


class Teller(Protocol):
    """Who is told; either of the first two may raise to leave the program."""

    def found(self, evidence: Evidence, how: How) -> None: ...
    def unexplained(self, sign: Sign) -> None: ...
    def stepped(self, step: int) -> None: ...
    def failed(self, error: BaseException) -> None: ...


class Told:
    """Each fault once."""

    def __init__(self, teller: Teller, recorder: Recorder) -> None:
        self.teller = teller
        self.has_begun = False
        self.evidence: list[Evidence] = []
        self.skipped: list[int] = []  # steps
        self.later: set[int] = set()  # harmful steps after the reported one
        self._recorder = recorder

    def knows(self, evidence: Evidence) -> bool:
        return _fault(evidence) in map(_fault, self.evidence)

    def completed(self, evidence: Evidence) -> Evidence:
        """The first harm with all that is to be known of it, while the recorder has it."""
        return evidence if self.evidence else self._recorder.complete(evidence)

    def found(self, evidence: Evidence, how: How) -> None:
        """Harm whose origin was seen."""
        self.has_begun = True
        self.evidence.append(evidence)
        self._tell(self.teller.found, evidence, how)

    def unexplained(self, sign: Sign) -> None:
        """Harm whose origin was not seen; after a report, it is what that one told of."""
        if not self.has_begun:
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

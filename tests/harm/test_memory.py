"""What the ledger remembers of a read does not keep the program's frames."""

from __future__ import annotations

import math
import weakref

from whynan.harm.ledger import Ledger, Sign


class Frames:
    """What is needed to look at a value again."""


def test_a_bad_value_that_is_read_once_holds_nothing_after_the_step() -> None:
    ledger, proof = Ledger(), Frames()
    known = weakref.ref(proof)
    ledger.read("here", Sign(sink="observed", subject="read", value=math.inf, proof=proof))
    ledger.step_ends()
    del proof
    assert known() is None
    assert ledger.bad_since("here") is not None

"""The words that users read, and how the terms of the code are said in them.

The code's terms are short names of JSON, which programs compare. People read these: "cause" (why a value
was as it was), "origin" (the operation that made the first bad value), "reason" (what its operands came
from), "where it surfaced" (where the bad value did harm), "change" (of the source; "verified" is one
that was run and stayed healthy), "healthy" (no harm was done), "step" (one update by the optimizer).
"""

from __future__ import annotations

CAUSES = {
    "autocast": "autocast",
    "bad_data": "the data",
    "bad_init": "initial weights",
    "cancellation": "cancellation",
    "constant_input": "equal values",
    "empty_mask": "empty mask",
    "eps_too_small": "eps too small",
    "exploding_gradients": "exploding gradients",
    "high_learning_rate": "learning rate too high",
    "loss_scale": "loss scale",
    "low_precision": "low precision",
    "missing_eps": "no eps",
    "poisoned_state": "bad earlier",
    "saturation": "saturation",
    "setting": "a setting",
    "unbounded": "no bound",
    "underflow": "underflow",
    "wrong_function": "unstable formula",
}


def cause(code: str) -> str:
    """A cause in words.

    >>> cause("high_learning_rate"), cause("something_new")
    ('learning rate too high', 'something new')
    """
    return CAUSES.get(code, code.replace("_", " "))

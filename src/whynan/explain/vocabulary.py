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
    "computed": "a computed number",
    "constant_input": "equal values",
    "empty_mask": "empty mask",
    "eps_too_small": "eps too small",
    "exploding_gradients": "exploding gradients",
    "growing_values": "values that grow",
    "high_learning_rate": "learning rate too high",
    "loss_scale": "loss scale",
    "low_precision": "low precision",
    "missing_eps": "no lower bound",
    "poisoned_state": "bad earlier",
    "saturation": "saturation",
    "setting": "a setting",
    "too_few_values": "too few values",
    "unbounded": "no bound",
    "small_exponent": "exponent below 1",
    "underflow": "underflow",
    "wrong_function": "unstable formula",
}

MECHANISMS = {
    "all_masked_softmax": "a row that is entirely masked",
    "compiled_only": "only when compiled",
    "division_by_zero": "division by zero",
    "empty_reduction": "mean or spread of too few values",
    "gradient_singularity": "no finite gradient there",
    "inf_minus_inf": "infinity minus infinity",
    "inf_over_inf": "infinity divided by infinity",
    "invalid_domain": "outside the function's domain",
    "log_nonpositive": "log of zero or a negative number",
    "nan_literal": "NaN written by the program",
    "nonfinite_data": "bad data",
    "opaque": "origin not known",
    "overflow": "overflow",
    "singular_matrix": "singular matrix",
    "sqrt_negative": "root of a negative number",
    "uninitialised_memory": "memory never written",
    "unstable_result": "another result each time",
    "wrong_kernel": "wrong kernel",
    "zero_times_inf": "zero times infinity",
}


def mechanism(code: str) -> str:
    """What an operation did, in words.

    >>> mechanism("log_nonpositive"), mechanism("something_new")
    ('log of zero or a negative number', 'something new')
    """
    return MECHANISMS.get(code, code.replace("_", " "))


def cause(code: str) -> str:
    """A cause in words.

    >>> cause("high_learning_rate"), cause("something_new")
    ('learning rate too high', 'something new')
    """
    return CAUSES.get(code, code.replace("_", " "))

"""Ratios of two densities of which neither can be the one that the value was drawn from."""

from __future__ import annotations

import re

from whynan.repair.case import Case

IMPOSSIBLE = -100.0  # the logarithm of a density that something was drawn from is no smaller
LOGARITHM = re.compile(r"log_?(p|pi|prob|density|lik)|nll", re.IGNORECASE)


def impossible(case: Case) -> tuple[float, float] | None:
    """`exp(new.log_prob(a) - old)` of -1608 and -1883: what was drawn is impossible under both."""
    exp, culprit = case.origin, case.culprit
    if case.mechanism != "overflow" or exp.name != "exp" or culprit is None or exp.site is None:
        return None
    if not LOGARITHM.search(exp.site.source):
        return None
    for op in culprit.upstream[:1]:
        values = [i.value for i in op.inputs if i.value is not None]
        summed = any(o.name == "sum" for i in op.inputs for o in i.upstream)
        if op.name == "sub" and len(values) == 2 and not summed and max(values) < IMPOSSIBLE:
            return values[0], values[1]
    return None

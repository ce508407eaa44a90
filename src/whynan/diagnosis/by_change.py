"""What the change that was found in the source says about the cause.

A form that has a stable one, a schedule that ends at 0, a number that the settings make 0.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from whynan.model import Cause, Fix

# They compute the same, and do not leave the range of the type on the way.
FORMS = frozenset(
    {"bce_with_logits", "cancel_log_exp", "cross_entropy", "decaying", "log_domain", "log_ratio", "log_softmax",
     "log_space", "logaddexp", "logcumsumexp", "logdet", "logsigmoid", "logsumexp", "shift_by_max", "sigmoid",
     "slogdet", "softmax", "softplus", "sum_of_logs"}
)  # fmt: skip
MAX_SHOWN = 72
HUNK = re.compile(r"^@@ -(\d+)")


def from_change(change: Fix | None) -> Iterator[Cause]:
    """Asked where nothing else is known."""
    place = _first_removed(change.patch) if change is not None and change.patch else None
    if change is None or place is None:
        return
    if change.kind in FORMS:
        yield Cause(
            code="wrong_function", evidence=f"{place} has a form that stays finite: {change.title}"
        )
    elif change.kind == "schedule_floor":
        yield Cause(code="setting", evidence=f"{place} ends at 0")
    elif change.kind == "divisor_at_least_1":
        yield Cause(
            code="computed", evidence=f"{place} divides by a number that the settings make 0"
        )
    elif change.kind == "np_maximum":
        bound = change.title.removeprefix("keep ")
        yield Cause(code="unbounded", evidence=f"{place}: nothing keeps {bound}")


def _first_removed(patch: str) -> str | None:
    """`schedule.py:9: `ramp = t / warm``, of the first line that is changed."""
    file, line = "", 0
    for text in patch.splitlines():
        hunk = HUNK.match(text)
        if text.startswith("--- "):
            file = os.path.basename(text[4:].split("\t")[0].strip())
        elif hunk is not None:
            line = int(hunk[1])
        elif text.startswith("-"):
            written = text[1:].strip()
            return f"{file}:{line}: `{written}`" if len(written) <= MAX_SHOWN else f"{file}:{line}"
        elif line and not text.startswith("+"):
            line += 1
    return None

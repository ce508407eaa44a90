"""What the doctor found, as lines to read or paste and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from whynan.doctor.facts import Facts
from whynan.doctor.selftest import Checkup, Cost

SCHEMA = "whynan.doctor/1"


def lines_of(facts: Facts, *, names: bool) -> Iterator[str]:
    """What there is; `names` adds every name that whynan takes from the inside of torch."""
    main = " · ".join(f"{name} {number}" for name, number in facts.versions.items())
    yield main
    yield facts.system
    for device in facts.devices:
        yield f"{device.kind}: {'; '.join(device.names)}"
    absent = sum(not name.is_present for name in facts.names)
    there = f"{absent} of them absent here" if absent else "all of them there"
    yield f"this torch can be watched: {len(facts.names)} names from its inside, {there}"
    for sentence in facts.lost:
        yield f"  lost in this torch: {sentence}"
    for name in facts.names if names else ():
        state = "there" if name.is_present else f"absent: {name.instead}"
        yield f"  {name.path}  since {name.since}, {state}"


def lines_of_checkup(checkup: Checkup) -> Iterator[str]:
    """What came of the self-test on one device."""
    yield f"self-test on {checkup.device}"
    for check in checkup.checks:
        yield f"  {'ok    ' if check.is_well else 'FAILED'} {check.name:16} {check.seen}"
    if checkup.cost is not None:
        yield f"         {'cost of a step':16} {_cost(checkup.cost)}"


def _cost(cost: Cost) -> str:
    ratio = cost.guarded_ms / cost.plain_ms
    time = f"{cost.plain_ms:.2f} ms plain, {cost.guarded_ms:.2f} ms guarded (x {ratio:.2f})"
    if cost.plain_waits is None or cost.guarded_waits is None:
        return time
    return f"{time}; {cost.plain_waits:.2f} and {cost.guarded_waits:.2f} waits for the device"


def closing(checkups: Sequence[Checkup]) -> str:
    """The verdict."""
    failed = sum(not check.is_well for checkup in checkups for check in checkup.checks)
    if failed:
        return f"whynan does not work here as it should: {failed} of the checks failed"
    return f"whynan works here, on {' and '.join(c.device for c in checkups)}"


def as_json(facts: Facts, checkups: Sequence[Checkup]) -> str:
    """Everything, also the names."""
    made = {
        "schema": SCHEMA,
        "ok": all(checkup.is_well for checkup in checkups),
        **asdict(facts),
        "checkups": [{"ok": c.is_well, **asdict(c)} for c in checkups],
    }
    return json.dumps(made, allow_nan=False, indent=1, ensure_ascii=False)

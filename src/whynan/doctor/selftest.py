"""The self-test of one device: faults are found where they are, and a healthy training stays as it is.

Every program runs in a process of its own, started as a user would start it.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whynan.doctor.programs import FAULTS, HEALTHY, Fault

PATIENCE_S = 120  # for one program; all of them take seconds
REPEATS = 2  # of the healthy training, plain and guarded in turn
HARM = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was tried, and what came of it in a sentence."""

    name: str
    is_well: bool
    seen: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Of a step of the healthy training: plain, and watched by the guard."""

    plain_ms: float
    guarded_ms: float
    plain_waits: float | None  # per step; None: this device does not count them
    guarded_waits: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkup:
    """Of one device."""

    device: str
    checks: tuple[Check, ...]
    cost: Cost | None

    @property
    def is_well(self) -> bool:
        return all(check.is_well for check in self.checks)


def check_up(device: str, folder: Path) -> Checkup:
    """Try everything on one kind of device; programs and reports are written to the folder."""
    with ThreadPoolExecutor(max(1, min(4, (os.cpu_count() or 2) // 2))) as pool:
        faults = list(pool.map(lambda fault: _find(fault, device, folder), FAULTS))
    healthy, cost = _train(device, folder)
    return Checkup(device=device, checks=(*faults, healthy), cost=cost)


# ---- faults ---------------------------------------------------------------------------------


def _find(fault: Fault, device: str, folder: Path) -> Check:
    script = folder / f"{device}_{fault.name}.py"
    script.write_text(fault.text, encoding="utf-8")
    report = script.with_suffix(".json")
    done = _start(["-m", "whynan", "run", "--json", str(report)], script, device)
    wrong = next(_wrong(fault, done, report), None)
    name = f"{fault.name} fault"
    if wrong is not None:
        return Check(name=name, is_well=False, seen=wrong)
    found = _report(report)
    way = found["reproduced"]
    where = f"line {fault.line}, {fault.phase}, {fault.mechanism}"
    step = f", step {fault.step}" if fault.step else ""
    return Check(name=name, is_well=True, seen=f"found: {where}{step} ({way})")


def _wrong(fault: Fault, done: _Ended, report: Path) -> Iterator[str]:
    """What is not as it should be."""
    if done.code != HARM:
        yield f"exit code {done.code} instead of {HARM}: {done.last_words}"
        return
    anomalies = _report(report).get("anomalies") or [{}]
    first = anomalies[0]
    for what, expected, seen in (
        ("line", fault.line, (first.get("location") or {}).get("line")),
        ("phase", fault.phase, first.get("phase")),
        ("mechanism", fault.mechanism, first.get("mechanism")),
        ("step", fault.step, first.get("step")),
    ):
        if expected != seen:
            yield f"{what} {seen} instead of {expected}"


def _report(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found


# ---- a healthy training -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Trained:
    learnt: str
    step_s: float
    waits: float | None


def _train(device: str, folder: Path) -> tuple[Check, Cost | None]:
    script = folder / f"{device}_healthy.py"
    script.write_text(HEALTHY, encoding="utf-8")
    runs: dict[str, list[_Trained]] = {"plain": [], "guarded": []}
    for _ in range(REPEATS):
        for kind, options in (("plain", []), ("guarded", ["-m", "whynan", "run"])):
            done = _start(options, script, device)
            trained = _trained(done)
            if trained is None:
                return _unwell(kind, done), None
            runs[kind].append(trained)
    plain, guarded = runs["plain"], runs["guarded"]
    cost = Cost(
        plain_ms=1e3 * min(t.step_s for t in plain),
        guarded_ms=1e3 * min(t.step_s for t in guarded),
        plain_waits=_typical(plain),
        guarded_waits=_typical(guarded),
    )
    return _compare(plain, guarded), cost


def _compare(plain: list[_Trained], guarded: list[_Trained]) -> Check:
    name = "healthy training"
    if len({t.learnt for t in plain}) > 1:
        return Check(
            name=name,
            is_well=True,
            seen="no alarm; two plain runs differ on this device, so whynan's cannot be compared",
        )
    if {t.learnt for t in plain} != {t.learnt for t in guarded}:
        return Check(name=name, is_well=False, seen="other weights than without whynan")
    return Check(name=name, is_well=True, seen="no alarm, the same weights to the last bit")


def _typical(runs: list[_Trained]) -> float | None:
    counts = [t.waits for t in runs if t.waits is not None]
    return statistics.median(counts) if counts else None


def _unwell(kind: str, done: _Ended) -> Check:
    seen = f"the {kind} run ended with exit code {done.code}: {done.last_words}"
    return Check(name="healthy training", is_well=False, seen=seen)


def _trained(done: _Ended) -> _Trained | None:
    words = done.stdout.split()
    if done.code != 0 or len(words) != 3:
        return None
    learnt, step_s, waits = words
    return _Trained(learnt, float(step_s), None if waits == "none" else float(waits))


# ---- processes ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Ended:
    code: int
    stdout: str
    last_words: str  # on standard error


def _start(options: list[str], script: Path, device: str) -> _Ended:
    command = [sys.executable, *options, str(script), device]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            cwd=script.parent,
            # Threads that wait for each other on a busy machine would be all that is measured.
            env={"OMP_NUM_THREADS": "1", **os.environ},
        )
    except subprocess.TimeoutExpired:
        return _Ended(-1, "", f"did not end within {PATIENCE_S} s")
    lines = done.stderr.strip().splitlines()
    return _Ended(done.returncode, done.stdout, lines[-1] if lines else "nothing was said")

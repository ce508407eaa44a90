"""Harm that was recorded in eager mode, in a program that compiles: is it there when it runs compiled?"""

from __future__ import annotations

import time

from whynan import voice
from whynan.model import AsCompiled, Evidence
from whynan.recording import ONLY_EAGER
from whynan.run.outputs import RunOptions
from whynan.run.rerun import (
    LIMIT,
    LIMIT_S,
    SHORT_S,
    Command,
    TooLong,
    compiled,
    run_again,
)


def as_compiled(
    found: Evidence, command: Command, options: RunOptions, took_s: float
) -> AsCompiled | None:
    """What a run of the program shows that is watched and not recorded. None: no operation made it."""
    if found.origin_kind not in ("operation", "absorbed", "raised"):
        return None
    short = options.rerun or (options.rerun is None and took_s <= SHORT_S)
    if found.origin_kind == "absorbed" or options.on_anomaly != "stop" or not short:
        return "unseen"  # what is absorbed shows in a recording only
    voice.say("recorded in eager mode; running the script again, compiled, to compare")
    step = compiled(found.origin.step, until=found.step)
    since_s = time.time() - took_s
    try:
        recording, _ = run_again(command, found.step, step, LIMIT_S + LIMIT * took_s, since_s)
    except (TooLong, KeyboardInterrupt, OSError):
        return "unseen"
    if recording is None:
        return "unseen"
    if recording.evidence:
        return "bad"
    return "finite" if ONLY_EAGER in recording.notes else "unseen"

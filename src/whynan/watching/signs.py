"""Signs of harm, and the evidence behind them: what the guard, the recorder or an exception shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from whynan.harm.ledger import Sign
from whynan.model import FROM_LOADER, Evidence
from whynan.record import unseen as record
from whynan.record.exceptions import bad_local, complains, frames_of, says_so
from whynan.record.harm import Harm
from whynan.seam.sites import Frames
from whynan.seam.tensors import bad_values
from whynan.watching.outside import place_at, written
from whynan.watching.told import Explained, How

LOSS_SCALE = "loss scale"
COMPUTED = ("operation", "number")  # origins that are no marker of the program's own


@dataclass(frozen=True, slots=True)
class Meant:
    """A repeat showed that the program itself has put it there, as a mark."""


@dataclass(frozen=True, slots=True)
class Noted:
    """The proof of one that can be, should it come to matter."""

    frames: Frames | None
    explain: Callable[[], tuple[Evidence, How] | Meant | None]


def explained(proof: Any) -> Explained | Meant | None:
    """What can be said of it without a second run."""
    if isinstance(proof, Evidence):
        return Explained(proof, "live")
    if isinstance(proof, Noted):
        found = proof.explain()
        return Explained(*found) if isinstance(found, tuple) else found
    return proof if isinstance(proof, Explained) else None


def sign_of(harm: Harm, evidence: Evidence | None = None) -> Sign:
    """What the recorder found, explained or not yet."""
    return Sign(
        sink=harm.sink, subject=harm.subject, step=harm.step, wrong=harm.known is not None,
        value=evidence.sink_value if evidence is not None else None, proof=evidence or harm,
    )  # fmt: skip


def signs_of(harms: list[Harm]) -> list[Sign]:
    return [sign_of(harm) for harm in harms]


def went_on(signs: Iterable[Sign], before: Explained | None) -> Explained | None:
    """What is known of losses that are bad, by the recorder; `before`: of those before them."""
    bad = [s.proof for s in signs if isinstance(s.proof, Evidence)]
    made = [evidence for evidence in bad if is_conclusive(evidence)]
    return Explained(made[0], "live") if made else before if bad else None


def complaint(error: BaseException, step: int) -> Sign | None:
    """An exception, if it is about something non-finite."""
    if not complains(error):
        return None
    if not says_so(error) and bad_local(error, lambda t: bad_values(t) is not None) is None:
        return None  # a test for finite values stands before it, but led elsewhere
    subject = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return Sign(sink="exception", subject=subject, step=step, proof=frames_of(error))


def exit_code(error: BaseException | None) -> int | None:
    """Of a program that ends itself; None: an exception ends it."""
    if error is None:
        return 0
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    return None


def unseen(sign: Sign, why: str) -> Evidence:
    """What is known of harm that only the guard saw, and why there is no more."""
    proof = sign.proof.frames if isinstance(sign.proof, Noted) else sign.proof
    frames = proof if isinstance(proof, Frames) else None
    return record.unseen(
        sign.sink, sign.subject, sign.step, value=sign.value, frames=frames, why=why
    )


def place_of_sign(sign: Sign) -> str:
    """Where a value was shown, as another process says it."""
    frames = sign.proof.frames if isinstance(sign.proof, Noted) else sign.proof
    return written(place_at(frames.code, frames.lasti)) if isinstance(frames, Frames) else ""


def is_older(evidence: Evidence) -> bool:
    """Whether the bad value was there when the recording began, and no loader gave it."""
    origin = evidence.origin
    return evidence.origin_kind == "entry" and origin.index < 0 and not _is_loaded(evidence)


def is_conclusive(evidence: Evidence) -> bool:
    """Whether the recording reached back far enough to see where it began."""
    if evidence.origin_kind != "entry" or evidence.around.remade is not None:
        return True
    if evidence.origin.index >= 0:  # made of plain numbers while it was recorded
        return True
    return _is_loaded(evidence)


def _is_loaded(evidence: Evidence) -> bool:
    inputs = evidence.origin.inputs
    return bool(inputs) and inputs[0].source == FROM_LOADER

"""Harm that only the guard saw, as evidence."""

from __future__ import annotations

from whynan.harm.ledger import Sign
from whynan.model import Evidence
from whynan.record import unseen as record
from whynan.seam.sites import Frames


def unseen(sign: Sign, why: str) -> Evidence:
    """What is known of it, and why there is no more."""
    frames = sign.proof if isinstance(sign.proof, Frames) else None
    return record.unseen(
        sign.sink, sign.subject, sign.step, value=sign.value, frames=frames, why=why
    )

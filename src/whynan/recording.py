"""What a traced block left behind: evidence and history, readable without torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from whynan import bounds
from whynan.codec import Mismatch, decode, encode
from whynan.errors import UsageError
from whynan.files import write_atomically
from whynan.model import Diagnosis, Evidence, HistoryRow, Outcome
from whynan.source.quotes import carrying, quoted

SCHEMA = "whynan.recording/1"


EAGERLY = "torch.compile was in use; the traced run executed it eagerly"  # a note
RIGHT = "what is shown here is not finite, and is the right answer: "  # a note, with the place
ONLY_EAGER = "compiled, the step is finite; in eager mode the same inputs are not"  # a note


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The evidence of every harm, oldest first, and the run in numbers."""

    evidence: tuple[Evidence, ...] = ()
    steps: int = 0
    history: tuple[HistoryRow, ...] = ()
    torch_version: str | None = None
    notes: tuple[str, ...] = ()
    # How it was run: known once the run has ended, and only needed by a saved one.
    script: str = ""
    outcome: Outcome | None = None
    mode: str | None = None
    reproduced: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    run: Mapping[str, str] = field(default_factory=dict)

    def of(self, diagnosis: Diagnosis) -> Recording:
        """With the circumstances of the run that a diagnosis knows."""
        return replace(
            self,
            script=diagnosis.script,
            outcome=diagnosis.outcome,
            mode=diagnosis.mode,
            reproduced=diagnosis.reproduced,
            versions=dict(diagnosis.versions),
            run=dict(diagnosis.run),
        )

    def portable(self) -> Recording:
        """With the quoted source lines inside, so that it reads the same anywhere."""
        return replace(self, evidence=tuple(quoted(e) for e in self.evidence))

    def save(self, path: Path | str, *, private: bool = False) -> None:
        """Write it as strict JSON, whole or not at all; `load` reads it back."""
        plain = {"schema": SCHEMA, **encode(self.portable())}
        write_atomically(Path(path), json.dumps(plain, allow_nan=False) + "\n", private=private)


def load(path: Path | str) -> Recording:
    """Read a saved recording. Nothing in the file is executed, and torch is not needed."""
    path = Path(path)
    try:
        if path.stat().st_size > bounds.MAX_BYTES:
            raise UsageError(f"{path} is too large for a whynan recording")
        plain = json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_constant)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not a whynan recording: it is not text") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not a whynan recording, or it is cut off: {error}") from None
    _check_schema(path, plain.get("schema") if isinstance(plain, dict) else None)
    try:
        recording = decode(Recording, plain)
        bounds.check(recording)
    except (Mismatch, RecursionError) as error:
        raise UsageError(f"{path} is a damaged whynan recording: {error}") from None
    # It quotes what it carries: a file of that name here is another one, and none of its business.
    return replace(recording, evidence=tuple(map(carrying, recording.evidence)))


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _check_schema(path: Path, schema: object) -> None:
    if schema == SCHEMA:
        return
    if schema == "whynan.report/1":
        raise UsageError(f"{path} is a report (--json), not a recording of a run")
    if isinstance(schema, str) and schema.startswith("whynan.recording/"):
        raise UsageError(f"{path} has the format {schema}; this whynan reads {SCHEMA}")
    raise UsageError(f"{path} is not a whynan recording: it does not say `{SCHEMA}`")

"""One traced block: installs the recorder, collects evidence, leaves everything as found."""

from __future__ import annotations

from collections.abc import Callable

from whynan.model import Evidence
from whynan.record.sinks import Sinks
from whynan.record.slicing import Harm, Slicer
from whynan.record.tracer import HOLD_BYTES
from whynan.recording import Recording

MAX_HARMS = 20


class Session:
    """`start()`, run the program, `stop()`; `recording()` is what was seen."""

    def __init__(
        self,
        *,
        on_evidence: Callable[[Evidence], None] = lambda evidence: None,
        hold_bytes: int = HOLD_BYTES,
    ) -> None:
        self.sinks = Sinks(self._harm, self._look, hold_bytes)
        self.tracer = self.sinks.tracer
        self._slicer = Slicer(self.tracer)
        self._on_evidence = on_evidence
        self._evidence: list[Evidence] = []
        self._seen: set[object] = set()
        self._harms = 0

    def start(self) -> None:
        self.sinks.install()

    def stop(self, error: BaseException | None = None) -> None:
        """End the block; `error` is the exception that left it, if one did."""
        try:
            if error is not None and not self._evidence:
                self.sinks.raised(error)
            if error is None:
                self.sinks.finish()
        finally:
            self.sinks.remove()

    def request_stop(self) -> None:
        """Every thread leaves the program at its next operation."""
        self.tracer.stopping = True

    def _look(self, harm: Harm) -> Evidence | None:
        return self._slicer.evidence(harm)

    def _harm(self, harm: Harm) -> None:
        if self._harms >= MAX_HARMS:
            return
        evidence = self._slicer.evidence(harm)
        if evidence is None:
            return
        self._harms += 1
        site = evidence.origin.site
        key = (site and (site.file, site.line, site.column), evidence.origin.op)
        if key in self._seen:
            return
        self._seen.add(key)
        self._evidence.append(evidence)
        self._on_evidence(evidence)

    def recording(self) -> Recording:
        import torch

        notes = list(self.sinks.notes)
        if self.tracer.broken:
            notes.append(f"whynan stepped aside after an error of its own: {self.tracer.broken}")
        return Recording(
            evidence=tuple(self._evidence),
            steps=self.tracer.step,
            history=tuple(self.sinks.history),
            torch_version=torch.__version__,
            notes=tuple(notes),
        )

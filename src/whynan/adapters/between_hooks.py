"""The guard for frameworks that call hooks: it is on between two of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal

from whynan import voice
from whynan.errors import AnomalyFound, UsageError
from whynan.files import write_atomically
from whynan.model import Diagnosis
from whynan.run.blocks import Watching, watch

Policy = Literal["stop", "skip", "warn"]


class Guarded:
    """`start()` and `end()` around the training, `check()` after each step.

    A step's update is left out also for `stop`; the exception comes from `check()`, out of the
    framework's own hook, so that the framework can clean up after itself.
    """

    def __init__(self, on_anomaly: Policy, capsule: str | Path | None) -> None:
        if on_anomaly not in ("stop", "skip", "warn"):
            raise UsageError(f"on_anomaly is {on_anomaly!r}; it can be stop, skip or warn")
        self.policy = on_anomaly
        self.capsule = capsule
        self.watching: Watching | None = None
        self._block: AbstractContextManager[Watching] | None = None
        self._raised = False

    def start(self, model: Any, optimizers: list[Any], tell: Callable[[Diagnosis], None]) -> None:
        self.end()

        def found(diagnosis: Diagnosis) -> None:
            tell(diagnosis)
            if self.policy != "stop":  # else the exception says it
                voice.report(str(diagnosis))

        self._block = watch(
            model, optimizers, capsule=self.capsule, tell=found,
            on_anomaly="skip" if self.policy == "stop" else self.policy,
        )  # fmt: skip
        self._raised = False
        self.watching = self._block.__enter__()

    def check(self, notes: tuple[str, ...] = ()) -> None:
        """After a step: raise if training is to stop."""
        found = self.watching.diagnosis if self.watching is not None else None
        if found is not None and self.policy == "stop" and not self._raised:
            from dataclasses import replace

            self._raised = True
            self.end()
            raise AnomalyFound(replace(found, notes=(*found.notes, *notes)))

    def end(self) -> None:
        """Leave everything as found."""
        block, self._block = self._block, None
        if block is not None:
            block.__exit__(None, None, None)


def write_report(diagnosis: Diagnosis, folder: Path) -> None:
    """`whynan.html`, `whynan.json` and `whynan.txt` beside what the framework itself writes."""
    from whynan.report import html, json_report

    folder.mkdir(parents=True, exist_ok=True)
    html.write(diagnosis, folder / "whynan.html")
    json_report.write(diagnosis, folder / "whynan.json")
    write_atomically(folder / "whynan.txt", str(diagnosis))


class Callback:
    """What whynan's callbacks of all frameworks have in common."""

    def __init__(self, on_anomaly: Policy = "stop", capsule: str | Path | None = None) -> None:
        self._guarded = Guarded(on_anomaly, capsule)

    @property
    def diagnosis(self) -> Diagnosis | None:
        """What was found."""
        return self._guarded.watching.diagnosis if self._guarded.watching else None

    @property
    def skipped(self) -> list[int]:
        """The steps whose update was left out; complete when the training has ended."""
        return self._guarded.watching.skipped if self._guarded.watching else []

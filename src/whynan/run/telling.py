"""What is told of a run: shown, written, kept, each for itself, so that what fails takes nothing along."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from whynan import voice
from whynan.diagnosis.engine import diagnose
from whynan.explain.story import in_short, tell
from whynan.model import Diagnosis, Evidence, Outcome
from whynan.recording import Recording
from whynan.run.circumstances import Circumstances
from whynan.run.outputs import Outputs, RunOptions
from whynan.run.program import Program, program_root

if TYPE_CHECKING:
    from whynan.repair.first import FirstChanges


class Telling:
    """`recording` is what is known so far."""

    def __init__(self, program: Program, options: RunOptions) -> None:
        self.recording = Recording()
        self.reproduced = "live"
        self.is_silent = False  # another rank tells the story
        self.outputs = Outputs(options)
        self._program = program
        self._circumstances = Circumstances(f"whynan run {program.typed}")
        self._options = options
        self._changes: FirstChanges | None = None
        self._shown = 0

    def show(self, *, fixes_follow: bool) -> None:
        """The anomalies that were not shown yet. What nobody could read counts for nothing."""
        new = self.with_changes().evidence[self._shown :]
        if not new or self.is_silent or not self._options.is_shown:
            return
        if voice.report(self._drawn(new, fixes_follow)):
            self._shown += len(new)

    def _drawn(self, new: tuple[Evidence, ...], fixes_follow: bool) -> str:
        try:
            from whynan.report import terminal

            part = diagnose(replace(self.recording, evidence=new))
            stories = [tell(a, self._program.typed) for a in part.anomalies]
            if fixes_follow:
                stories = [replace(story, fixes=()) for story in stories]
            width = terminal.width_of(voice.columns())
            return terminal.styled(terminal.draw(stories, width=width), voice.is_on_terminal())
        except Exception as error:  # the harm is told, however plainly
            return in_short(new, error)

    def diagnosis(self, outcome: Outcome) -> Diagnosis:
        result = diagnose(self.with_changes(), script=self._program.target, outcome=outcome)
        unsaid = voice.unsaid()
        return replace(
            result,
            mode=self._options.mode,
            reproduced=self.reproduced,
            run=self._circumstances.told(),
            notes=(*result.notes, *([unsaid] if unsaid else [])),
        )

    def write(self, outcome: Outcome, *, is_last: bool) -> None:
        if self.is_silent or not self.outputs.are_wanted:
            return
        try:
            diagnosis = self.diagnosis(outcome)
        except Exception as error:
            voice.say(f"nothing could be written: {error!r}")
            return
        self.outputs.write(diagnosis, self.with_changes(), is_last=is_last)

    def with_changes(self) -> Recording:
        """What is known, each harm with the change that the source shows for it."""
        if not self._options.is_shown or not self.recording.evidence or self.is_silent:
            return self.recording
        if self._changes is None:
            from whynan.repair.first import FirstChanges

            self._changes = FirstChanges(program_root(self._program))
        return self._changes.beside(self.recording)

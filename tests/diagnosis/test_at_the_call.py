"""Where an installed package's line failed, the help is about the user's call."""

from __future__ import annotations

from dataclasses import replace

from tests.builders import origin, recording
from whynan.diagnosis.engine import explain_evidence
from whynan.model import Evidence, Site

CALL = Site(
    file="model.py", line=26, end_line=26, column=8, end_column=20,
    function="forward", source="return self.ada(c)", expression="self.ada(c)",
)  # fmt: skip


def helped(evidence: Evidence) -> list[str]:
    return [f"{fix.kind}: {fix.title}" for fix in explain_evidence(evidence).finding.fixes]


def test_a_floor_is_no_help_in_a_line_that_nobody_edits() -> None:
    (evidence,) = recording().evidence
    site = evidence.origin.site
    assert site is not None
    assert not helped(evidence)[0].startswith("at_the_call")
    library = replace(evidence, origin=origin(site=replace(site, caller=CALL)))
    first = helped(library)[0]
    assert first.startswith("at_the_call: the line belongs to an installed package")
    assert "handed in at model.py:26, `self.ada(c)`, or the option" in first

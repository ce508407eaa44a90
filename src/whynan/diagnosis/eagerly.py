"""What is added to a finding of a recording in eager mode, where the program compiles."""

from __future__ import annotations

from dataclasses import replace

from whynan.model import Evidence, Finding

FINITE = "run once more, compiled, the program stays finite in that step; from the same inputs its operations one by one do not"
BAD = "run once more as it is, compiled, the program fails as well"
NOT_IT = "as it is compiled here, the program does not have this fault: a device, a torch or a mode in which it is not compiled has"
UNSEEN = "whether it happens compiled, too: it was recorded in eager mode. `whynan run` on the program watches it compiled"


def in_eager_mode(finding: Finding, evidence: Evidence) -> Finding:
    """The program may not have what its operations have one by one."""
    if evidence.as_compiled == "finite":
        return replace(
            finding,
            headline=f"only in eager mode: {finding.headline}",
            observed=(FINITE, *finding.observed),
            inferred=(*finding.inferred, NOT_IT),
        )
    if evidence.as_compiled == "bad":
        return replace(finding, observed=(*finding.observed, BAD))
    if evidence.as_compiled == "unseen":
        return replace(finding, unknown=(*finding.unknown, UNSEEN))
    return finding

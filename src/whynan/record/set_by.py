"""Which setting of the user's an origin goes back to: an eps of 0, a tiny temperature."""

from __future__ import annotations

import os

from whynan.model import Evidence, Setting
from whynan.seam.sites import own_files
from whynan.source.settings import odd_numbers, setting_behind


def setting_of(evidence: Evidence) -> Setting | None:
    """The one number that explains the origin and that stands in the user's own text."""
    if evidence.origin_kind not in ("operation", "number") or evidence.origin.phase in (
        "optimizer",
        "data",
    ):
        return None
    files = [*own_files()]
    folders = list(dict.fromkeys([os.getcwd(), *(os.path.dirname(f) for f in files)]))
    for op, name, value in odd_numbers(evidence.origin):
        if op.site is not None:
            found = setting_behind(op.site, [name], value, files, folders)
            if found is not None:
                return Setting(
                    name=found.name, value=value, file=found.file, line=found.line, text=found.text
                )
    return None

"""Where a number that an operation was given is set."""

from __future__ import annotations

from pathlib import Path

from whynan.model import Site
from whynan.source.settings import setting_behind

TEXT = """state = make(scale=0.0)
state = state / state.detach().abs().amax()
for turn in range(3):
    state = state / (state * other)
    other = other + state
"""


def test_a_name_that_is_made_of_itself_is_followed_once(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(TEXT)
    site = Site(
        file=str(script), line=4, end_line=4, column=12, end_column=35, function="<module>",
        source="state / (state * other)",
    )  # fmt: skip
    assert setting_behind(site, ["other"], 0.0, [str(script)], []) is None

"""The part of a report that says what to change: the difference, and the proof that it works."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

from rich.text import Text

from whynan.model import ADVICE, Fix

WIDTH = 80
HUNK = re.compile(r"^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
MAX_OTHERS = 4


def draw(fixes: Sequence[Fix], home: str | None, width: int = WIDTH) -> list[Text]:
    """The verified change in full, the others in a line each; `home` is the origin's file."""
    verified = [f for f in fixes if f.verdict == "verified"]
    failed = [f for f in fixes if f.verdict == "failed"]
    waiting = [f for f in fixes if f.verdict == "not_tried" and f.patch]
    lines: list[Text] = []
    for fix in verified:
        lines += wrapped("help: ", fix.title, "bold green", width)
        lines += [Text(text, style=style) for text, style in patch_rows(fix.patch or "", home)]
        lines += wrapped("   = verified: ", fix.evidence, "green", width)
    alone = not (verified or failed or waiting)
    for fix in fixes:
        if alone or fix.kind == ADVICE:
            lines += wrapped("help: ", fix.title, "bold green", width)
    for fix in failed[:MAX_OTHERS]:
        lines += wrapped("   = tried, failed: ", f"{fix.title}: {fix.evidence}", "yellow", width)
    if len(failed) > MAX_OTHERS:
        lines.append(Text(f"   = and {len(failed) - MAX_OTHERS} more tried in vain"))
    if waiting:
        titles = list(dict.fromkeys(f.title for f in waiting))
        lines += wrapped("   = others, ", f"{waiting[0].evidence}:", "dim", width)
        for title in titles[:MAX_OTHERS]:
            lines += wrapped("      - ", title, "dim", width)
        if len(titles) > MAX_OTHERS:
            lines.append(Text(f"      - and {len(titles) - MAX_OTHERS} more"))
    return lines


def patch_rows(patch: str, home: str | None) -> list[tuple[str, str]]:
    """A unified diff as numbered lines, removed and added ones only."""
    found: list[tuple[int | None, str, str]] = []
    old = new = 0
    several = patch.count("\n+++ b/") > 1
    for line in patch.splitlines():
        if line.startswith("+++ "):
            file = line.removeprefix("+++ b/")
            if file != home or several:
                found.append((None, f"--> {file}", "blue"))
        elif hunk := HUNK.match(line):
            old, new = int(hunk[1]), int(hunk[2])
        elif line.startswith("-") and not line.startswith("--- "):
            found.append((old, f"- {line[1:]}", "red"))
            old += 1
        elif line.startswith("+"):
            found.append((new, f"+ {line[1:]}", "green"))
            new += 1
        elif line.startswith(" "):
            old, new = old + 1, new + 1
    gutter = max([len(str(n)) for n, _, _ in found if n] or [2])
    return [
        (f"{n:>{gutter}} {text}" if n else f"{' ' * gutter}{text}", style)
        for n, text, style in found
    ]


def wrapped(label: str, text: str, style: str, width: int = WIDTH) -> list[Text]:
    parts = textwrap.wrap(text, width - len(label)) or [""]
    indent = " " * (len(label) if label.strip() == "-" else min(len(label), 6))
    rest = textwrap.wrap(" ".join(parts[1:]), width - len(indent))
    return [Text.assemble((label, style), parts[0]), *(Text(indent + part) for part in rest)]

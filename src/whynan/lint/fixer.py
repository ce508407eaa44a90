"""Applies replacements to text until nothing is left to apply; the result always parses."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from whynan.lint.finding import Finding, Replacement
from whynan.lint.layout import LINES, broken, line_limit
from whynan.lint.leftovers import without_leftovers
from whynan.source.trees import parsed

MAX_PASSES = 12


def fix(
    text: str, check: Callable[[str], list[Finding]], *, keep_lines: bool = False
) -> tuple[str, int]:
    """Fixed text and how many replacements were made.

    `keep_lines`: every line stays where it is, as the cells of a notebook ask for.
    """
    made = 0
    rejected: set[tuple[str, str]] = set()  # what replaced what: not tried again
    for _ in range(MAX_PASSES):
        wanted = [
            f.replacement
            for f in check(text)
            if f.replacement is not None
            and not (keep_lines and _moves_lines(f.replacement))
            and (f.source, f.replacement.text) not in rejected
        ]
        chosen = _apart(wanted)
        if not chosen:
            break
        changed = _changed(text, chosen, keep_lines)
        if changed is not None:
            text, made = changed, made + len(chosen)
            continue
        for one in chosen:  # one of them does not fit: find out which
            changed = _changed(text, [one], keep_lines)
            if changed is not None:
                text, made = changed, made + 1
                break
            rejected.add((text.splitlines()[one.start[0] - 1], one.text))
    return text, made


def with_one(text: str, replacement: Replacement) -> str | None:
    """The text with one fix made; None if that would be no Python."""
    return _changed(text, [replacement], keep_lines=False)


def _changed(text: str, chosen: list[Replacement], keep_lines: bool) -> str | None:
    """The text with replacements and without what they leave over; None if it is no Python."""
    changed = apply(text, chosen, keep_lines)
    if not _parses(changed):
        return None
    return changed if keep_lines else without_leftovers(text, changed)


def _apart(replacements: Iterable[Replacement]) -> list[Replacement]:
    """Those that do not overlap, inner ones first: what surrounds them is looked at again."""
    chosen: list[Replacement] = []
    for one in sorted(replacements, key=lambda r: (r.end, (-r.start[0], -r.start[1]))):
        if not chosen or chosen[-1].end <= one.start:
            chosen.append(one)
    return chosen


def _moves_lines(one: Replacement) -> bool:
    return bool(one.needs) or one.text.count("\n") != one.end[0] - one.start[0]


def apply(text: str, replacements: Iterable[Replacement], keep_lines: bool = False) -> str:
    """The text with every replacement made."""
    lines = LINES.findall(text)
    newline = "\r\n" if "\r\n" in text else "\n"
    limit = line_limit([line.rstrip("\r\n") for line in lines])
    changed: list[int] = []  # lines that were short enough, from the last to the first
    needed: dict[int, set[str]] = {}
    for one in sorted(replacements, key=lambda r: r.start, reverse=True):
        (first, left), (last, right) = one.start, one.end
        was_short = len(lines[first - 1].rstrip("\r\n")) <= limit
        new = lines[first - 1][:left] + one.text.replace("\n", newline) + lines[last - 1][right:]
        lines[first - 1 : last] = LINES.findall(new)
        moved = one.text.count("\n") - (last - first)
        changed = [number + moved for number in changed] + ([first] if was_short else [])
        if one.needs:
            needed.setdefault(one.above, set()).add(one.needs)
    for number, statements in sorted(needed.items(), reverse=True):
        lines[number - 1 : number - 1] = [s + newline for s in sorted(statements)]
        changed = [n + len(statements) * (n >= number) for n in changed]
    text = "".join(lines)
    if not keep_lines and _parses(text):
        for number in sorted(set(changed), reverse=True):
            text = broken(text, number, limit)
    return text


def _parses(text: str) -> bool:
    try:
        parsed(text)
    except (SyntaxError, ValueError):
        return False
    return True

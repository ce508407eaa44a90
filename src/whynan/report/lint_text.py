"""Lint findings for a person: headline, place, source as typed, what to do."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Iterable

from whynan.lint.finding import Finding
from whynan.voice import visible

WIDTH = 80
COLOURS = {"error": "red", "warning": "yellow", "info": "cyan"}
Paint = Callable[[str, str], str]


def plain(text: str, colour: str) -> str:
    return text


def draw(finding: Finding, paint: Paint = plain) -> str:
    """One finding as a block of text."""
    head = f"{finding.severity}[{finding.code}]: {finding.message} ({finding.slug})"
    lines = textwrap.wrap(head, WIDTH, subsequent_indent="  ", break_long_words=False)
    mark = f"{finding.severity}[{finding.code}]"
    margin = " " * len(str(finding.line))
    lines.append(f"{margin}--> {place(finding)}")
    lines.append(f"{margin} |")
    lines.append(f"{finding.line} | {finding.source.expandtabs(1)}")
    lines.append(f"{margin} | {_underline(finding)}")
    lines += _paragraph("help: ", finding.help)
    if finding.replacement is not None:
        lines.append(f"{margin} = fix: {_short(finding.replacement.text)} (applied by --fix)")
    lines = [visible(line) for line in lines]
    lines[0] = paint(mark, COLOURS[finding.severity]) + lines[0][len(mark) :]
    return "\n".join(lines)


def place(finding: Finding) -> str:
    """`file:line:column`, both from 1 as editors count; a notebook's with its cell."""
    cell = f":cell {finding.cell}" if finding.cell is not None else ""
    return f"{finding.path}{cell}:{finding.line}:{finding.column + 1}"


def _underline(finding: Finding) -> str:
    source = finding.source.expandtabs(1).rstrip()
    end = finding.end_column if finding.end_line == finding.line else len(source)
    return " " * finding.column + "^" * max(1, end - finding.column)


def _paragraph(label: str, text: str) -> list[str]:
    return textwrap.wrap(
        label + text, WIDTH, subsequent_indent=" " * len(label), break_long_words=False
    )


def _short(text: str) -> str:
    one_line = " ".join(text.split())
    return one_line if len(one_line) <= 50 else one_line[:47] + "..."


def summary(findings: list[Finding], files: int, fixed: int) -> str:
    """The last line: how many of what."""
    parts = []
    counts = Counter(f.severity for f in findings)
    for severity, plural in (("error", "errors"), ("warning", "warnings"), ("info", "infos")):
        if counts[severity]:  # type: ignore[index]  # the three severities
            number = counts[severity]  # type: ignore[index]  # as above
            parts.append(f"{number} {severity if number == 1 else plural}")
    checked = f"in {files} file{'' if files == 1 else 's'}"
    fixable = sum(f.replacement is not None for f in findings)
    text = ", ".join(parts) if parts else "nothing unstable found"
    text = f"{text} {checked}"
    if fixed:
        text = f"{fixed} fixed; {text}"
    if fixable:
        text += f"; {fixable} can be fixed by --fix"
    return text


def statistics(findings: Iterable[Finding]) -> str:
    """How often each pattern was met."""
    counts = Counter((f.code, f.slug, f.severity) for f in findings)
    rows = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return "\n".join(f"{n:>6}  {code}  {slug:<18} {severity}" for (code, slug, severity), n in rows)

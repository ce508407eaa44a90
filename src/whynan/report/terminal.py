"""A diagnosis as text, as wide as the terminal and 80 columns in a file, in colour only on a terminal."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from rich.console import Console
from rich.text import Text

from whynan.explain.snippet import Row
from whynan.explain.story import Story
from whynan.report.remedy import patch_rows
from whynan.report.window import windowed
from whynan.source.quotes import short_path
from whynan.voice import visible

WIDTH = 80
NARROWEST, WIDEST = 60, 140
PATCH = 16  # lines of a change that was not tried
PATCH_ROW = re.compile(r"( *\d+ [-+] )( *)(.*)")
STYLES = {
    "observed": "cyan", "where": "dim", "inferred": "yellow", "unknown": "magenta", "path": "cyan",
}  # fmt: skip


def draw(
    stories: Sequence[Story],
    notes: Sequence[str] = (),
    change: Sequence[Text] | None = None,
    width: int = WIDTH,
) -> list[Text]:
    """All stories as styled lines; `change` stands in the place of what would be recommended."""
    lines: list[Text] = []
    for story in stories:
        lines += [*_draw_story(story, change, width), Text("")]
    lines += [Text(f"note: {note}", style="yellow") for note in notes]
    return lines


def _draw_story(story: Story, change: Sequence[Text] | None, width: int) -> list[Text]:
    gutter = max([len(str(row.number)) for row in story.rows if row.number] or [2])
    bar = f"{' ' * gutter} |"
    head = textwrap.wrap(f"error[{story.code}]: {story.headline}", width, subsequent_indent="  ")
    lines = [Text(part, style="bold red" if i == 0 else "bold") for i, part in enumerate(head)]
    lines.append(Text(f"{' ' * gutter}--> ", style="blue").append(story.place, _link(story)))
    if story.rows:
        lines.append(Text(bar, style="blue"))
        for row in windowed(story.rows, width - gutter - 3):
            lines += _draw_row(row, gutter, width)
        lines.append(Text(bar, style="blue"))
    lines += _draw_change(story, gutter, width) if change is None else change
    for fact in story.facts:
        lines += _labelled(
            f"{' ' * gutter} = {fact.label}: ", fact.text, STYLES.get(fact.label, "green"), width
        )
    lines += _draw_chain(story, gutter, width)
    for fix in story.fixes[1:]:
        lines += _labelled(f"{' ' * gutter} = or: ", fix.title.removeprefix("or "), "green", width)
    if story.next:
        lines += _labelled(f"{' ' * gutter} = more: ", story.next, "dim", width)
    return lines


def _link(story: Story) -> str:
    """A terminal that can, opens the file; one that was recorded elsewhere is not here."""
    path = Path(story.file)
    try:
        return f"blue link {path.as_uri()}" if path.is_absolute() and path.is_file() else "blue"
    except (OSError, ValueError):
        return "blue"


def _draw_change(story: Story, gutter: int, width: int) -> list[Text]:
    """The one recommended, before the reasons for it."""
    if not story.fixes:
        return []
    lines = _labelled("help: ", story.fixes[0].title, "bold green", width)
    lines += _draw_patch(story, width)
    if story.proof:
        lines += _labelled(f"{' ' * gutter} = ", story.proof, "dim", width)
    return lines


def _draw_patch(story: Story, width: int) -> list[Text]:
    """As an edit of the source, moved to the left; what is too long goes on in the next line."""
    rows = patch_rows(story.fixes[0].patch or "", short_path(story.file) if story.file else None)
    code = [row for row in map(PATCH_ROW.match, (text for text, _ in rows)) if row is not None]
    indent = min((len(row[2]) for row in code if row[3]), default=0)
    lines = []
    for text, style in rows[:PATCH]:
        row = PATCH_ROW.match(text)
        shown = text if row is None else row[1] + row[2][indent:] + row[3]
        further = " " * (len(row[1]) + 4 if row is not None else 4)
        wrapped = textwrap.wrap(
            shown, width, subsequent_indent=further, break_on_hyphens=False, drop_whitespace=True
        )
        lines += [Text(part, style=style) for part in wrapped]
    if len(rows) > PATCH:
        lines.append(Text(f"   ... and {len(rows) - PATCH} lines more", style="dim"))
    return lines


def _draw_row(row: Row, gutter: int, width: int) -> list[Text]:
    if row.kind == "gap":
        return [Text(f"{' ' * gutter} {row.text}", style="blue")]
    number = str(row.number or "").rjust(gutter)
    prefix = Text.assemble((f"{number} | ", "blue"))
    room = width - gutter - 3
    if row.kind == "source":
        return [prefix + Text(row.text)]
    style = "bold red" if row.kind == "origin" else "cyan"
    if len(row.text) <= room:
        return [prefix + Text(row.text, style=style)]
    marks, _, label = row.text.lstrip().partition(" ")
    indent = len(row.text) - len(row.text.lstrip())
    if len(label) + 2 <= room - min(indent, 8):
        start = min(indent, room - len(label))
        return [
            prefix + Text(" " * indent + marks, style=style),
            prefix + Text(" " * start + label, style=style),
        ]
    wrapped = textwrap.wrap(label, room - 4)
    return [
        prefix + Text(" " * indent + marks, style=style),
        *[prefix + Text("    " + part, style=style) for part in wrapped],
    ]


def _labelled(label: str, text: str, style: str, width: int) -> list[Text]:
    indent = " " * min(len(label), 12)
    wrapped = textwrap.wrap(text, width - len(label)) or [""]
    first, rest = wrapped[0], " ".join(wrapped[1:])
    lines = [Text.assemble((label, style), first)]
    lines += [Text(indent + part) for part in textwrap.wrap(rest, width - len(indent))]
    return lines


def _draw_chain(story: Story, gutter: int, width: int) -> list[Text]:
    if not story.chain:
        return []
    lines = [
        Text(
            f"{' ' * gutter} = path of one element, and what its values were made from:",
            style="cyan",
        )
    ]
    widths = [max(len(row[i]) for row in story.chain) for i in range(3)]
    widths = [min(w, cap) for w, cap in zip(widths, (28, 22, 12), strict=True)]
    for place, op, value, note in story.chain:
        text = f"{' ' * gutter}     {_fit(place, widths[0])}  {_fit(op, widths[1])}  {value.rjust(widths[2])}"
        room = width - len(text) - 2
        shown = note if len(note) <= room else note[: max(0, room - 3)] + "..."
        style = "bold red" if note == "origin" else ""
        lines.append(Text(f"{text}  {shown}".rstrip(), style=style))
    return lines


def _fit(text: str, width: int) -> str:
    return text.ljust(width) if len(text) <= width else "..." + text[-(width - 3) :]


def width_of(columns: int | None) -> int:
    """How wide to draw for so many columns; None: not a terminal.

    >>> width_of(None), width_of(100), width_of(300), width_of(20)
    (80, 100, 140, 60)
    """
    return WIDTH if not columns else min(WIDEST, max(NARROWEST, columns))


def to_text(lines: Sequence[Text]) -> str:
    """Without colour."""
    return "".join(f"{visible(line.plain)}\n" for line in lines)


class _Sheet(io.StringIO):
    """Where rich draws for a stream that is not asked itself: it may be broken."""

    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


def styled(lines: Sequence[Text], is_terminal: bool) -> str:
    """With colour where a terminal shows it."""
    sheet = _Sheet(is_terminal)
    write(lines, sheet)
    return sheet.getvalue()


def write(lines: Sequence[Text], stream: IO[str]) -> None:
    """To a stream; rich decides about colour (terminal, NO_COLOR)."""
    # Lines are wrapped above. A width of its own: where the environment says 0, rich draws nothing.
    console = Console(
        file=stream, width=WIDEST, highlight=False, soft_wrap=True, emoji=False, markup=False
    )
    for line in lines:
        shown = line.copy()
        shown.plain = visible(line.plain)  # as long as before, so that colours stay in place
        console.print(shown)

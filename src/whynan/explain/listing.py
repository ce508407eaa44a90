"""The source of every stage, with each expression marked where it stands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from whynan.explain.snippet import Quotes, source_line
from whynan.explain.stages import Stage
from whynan.model import Site
from whynan.source.quotes import short_path

AROUND_ORIGIN = 3
AROUND_OTHERS = 1
MOST_LINES = 8
# What is drawn where several expressions overlap: the last one wins.
ORDER = ("path", "sink", "reason", "origin")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line as pieces of (text, role); `number` is None where lines are left out."""

    number: int | None
    pieces: tuple[tuple[str, str], ...] = ()
    notes: tuple[tuple[str, str], ...] = ()  # role, words

    @property
    def indent(self) -> int:
        """Columns before the first character: where a line that is too long goes on."""
        text = "".join(text for text, _ in self.pieces).expandtabs()
        return len(text) - len(text.lstrip())

    @property
    def role(self) -> str:
        return max((role for role, _ in self.notes), key=ORDER.index, default="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The part of one file that matters."""

    file: str
    shown: str
    lines: tuple[Line, ...]


def listings_of(stages: Sequence[Stage], quotes: Quotes) -> list[Listing]:
    """One listing per file, the origin's first."""
    placed = [(stage, site) for stage in stages for site in _places(stage)]
    origin_first = sorted(placed, key=lambda entry: entry[0].role != "origin")
    files = list(dict.fromkeys(site.file for _, site in origin_first))
    return [_listing(file, [e for e in placed if e[1].file == file], quotes) for file in files]


def _places(stage: Stage) -> Iterator[Site]:
    if stage.site is not None and not stage.aside:
        yield stage.site
        if stage.site.caller is not None and stage.role == "origin":
            yield stage.site.caller


def _listing(file: str, placed: list[tuple[Stage, Site]], quotes: Quotes) -> Listing:
    wanted: set[int] = set()
    for stage, site in placed:
        around = AROUND_ORIGIN if stage.role == "origin" else AROUND_OTHERS
        wanted |= set(range(max(1, site.line - around), _end(site) + around + 1))
    found = [_line(file, number, placed, quotes) for number in sorted(wanted)]
    lines: list[Line] = []
    for block in _blocks(found):
        lines += [Line(number=None), *block] if lines else block
    return Listing(file=file, shown=short_path(file), lines=tuple(lines))


def _blocks(lines: list[Line]) -> Iterator[list[Line]]:
    """Lines that stand together, without empty ones at either end."""
    numbered = enumerate(lines)
    for _, group in groupby(numbered, key=lambda pair: (pair[1].number or 0) - pair[0]):
        block = [line for _, line in group]
        full = [i for i, line in enumerate(block) if line.pieces]
        if full:
            yield block[full[0] : full[-1] + 1]


def _line(file: str, number: int, placed: list[tuple[Stage, Site]], quotes: Quotes) -> Line:
    text = source_line(file, number, quotes)
    here = [(stage, site) for stage, site in placed if site.line <= number <= _end(site)]
    if not text and here:
        text = here[0][1].source if here[0][1].line == number else ""
    roles = [""] * len(text)
    for stage, site in sorted(here, key=lambda entry: ORDER.index(entry[0].role)):
        start, end = _columns(site, number, text)
        roles[start:end] = [stage.role] * len(roles[start:end])
    ending = [stage for stage, site in here if _end(site) == number]
    return Line(number=number, pieces=tuple(_pieces(text, roles)), notes=tuple(_notes(ending)))


def _end(site: Site) -> int:
    """Of a statement with a body, such as a loop over a loader, only its first line is meant."""
    has_body = site.source.rstrip().endswith(":")
    return site.line if has_body or site.end_line - site.line >= MOST_LINES else site.end_line


def _columns(site: Site, number: int, text: str) -> tuple[int, int]:
    indent = len(text) - len(text.lstrip())
    start = site.column if number == site.line and site.column is not None else indent
    last = number == site.end_line and site.end_column is not None
    end = site.end_column if last and site.end_column is not None else len(text)
    return start, end


def _pieces(text: str, roles: Iterable[str]) -> Iterator[tuple[str, str]]:
    for role, group in groupby(zip(text, roles, strict=True), key=lambda pair: pair[1]):
        yield "".join(character for character, _ in group), role


def _notes(stages: Iterable[Stage]) -> Iterator[tuple[str, str]]:
    """What became of the value on this line; operations of one kind share a note."""
    for role, group in groupby(stages, key=lambda stage: stage.role):
        words = dict.fromkeys(_words(stage) for stage in group)
        yield role, " → ".join(words)


def _words(stage: Stage) -> str:
    if stage.role == "origin":
        return stage.note or "origin"
    if stage.role == "sink":
        return f"{stage.note}: {stage.shown}" if stage.shown else stage.note
    return f"{stage.op} {stage.shown}".strip()

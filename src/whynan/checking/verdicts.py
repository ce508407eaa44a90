"""What a check found: one line per array, whether it is sound, and what is wrong with it."""

from __future__ import annotations

import html
from dataclasses import dataclass

from whynan.checking.picture import draw
from whynan.checking.tally import Summary
from whynan.errors import CheckFailed

MOST_LINES = 40
TABLE = "border-collapse: collapse; font-size: 13px; margin: 0"
CELL = (
    "text-align: left; vertical-align: top; padding: 4px 12px 4px 0; max-width: 40em;"
    " border: 0; border-bottom: 1px solid #8886; background: none; overflow-wrap: anywhere"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """One remark about an array; a fault is one that the caller asked to be told of."""

    kind: str
    text: str
    fault: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One array by name."""

    name: str
    summary: Summary
    troubles: tuple[Trouble, ...] = ()

    @property
    def faults(self) -> tuple[Trouble, ...]:
        return tuple(t for t in self.troubles if t.fault)

    def __str__(self) -> str:
        line = f"{self.name}: {self.summary}" if self.name else str(self.summary)
        texts = [t.text for t in (*self.faults, *(t for t in self.troubles if not t.fault))]
        return f"{line}  | {', '.join(texts)}" if texts else line


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The result of `whynan.check`: true when nothing is wrong.

    `print` it for one line per array; a notebook shows it as a table. `items` has the numbers.
    """

    items: tuple[Item, ...]

    @property
    def bad(self) -> tuple[Item, ...]:
        """The arrays with a fault."""
        return tuple(item for item in self.items if item.faults)

    def __bool__(self) -> bool:
        return not self.bad

    def __str__(self) -> str:
        return "\n".join(_shortened([str(item) for item in self.items])) or "no arrays"

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """A table in the colours of the notebook, whose own styles for tables it overrides."""
        titles = ("name", "holds", "magnitudes", "remarks")
        head = _row(titles, "th")
        shown = self.items[:MOST_LINES]
        rows = "".join(_row(_cells(item), "td") for item in shown)
        left = len(self.items) - len(shown)
        more = f"<p>... {left:,} more</p>" if left else ""
        return (
            f"<div style='overflow-x: auto'><table style='{TABLE}'><thead>{head}</thead>"
            f"<tbody>{rows}</tbody></table></div>{more}"
        )

    def complaint(self) -> str:
        """Only what is wrong, for an error message."""
        lines = [str(item) for item in self.bad]
        if len(self.items) > 1:
            lines.insert(0, f"{len(self.bad)} of {len(self.items)} arrays are bad")
        return "\n".join(_shortened(lines))

    def raise_if_bad(self) -> None:
        """Raise `CheckFailed` unless all is well."""
        if self.bad:
            raise CheckFailed(self)


def _row(cells: tuple[str, ...], tag: str) -> str:
    inside = "".join(f'<{tag} style="{CELL}">{cell}</{tag}>' for cell in cells)
    return f'<tr style="background: none">{inside}</tr>'


def _cells(item: Item) -> tuple[str, str, str, str]:
    exponents = item.summary.stats.exponents
    return (
        f"<code>{html.escape(item.name)}</code>",
        html.escape(str(item.summary)),
        draw(exponents) if exponents else "",
        "<br>".join(_mark(trouble) for trouble in item.troubles),
    )


def _mark(trouble: Trouble) -> str:
    text = html.escape(trouble.text)
    return f"<b>{text}</b>" if trouble.fault else text


def _shortened(lines: list[str]) -> list[str]:
    if len(lines) <= MOST_LINES:
        return lines
    return [*lines[: MOST_LINES - 1], f"... {len(lines) - MOST_LINES + 1:,} more"]

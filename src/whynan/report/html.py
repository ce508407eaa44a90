"""The report as one page that loads nothing, or as a piece of a notebook."""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from whynan.explain.layout import Branch, tree_of
from whynan.explain.listing import Listing, listings_of
from whynan.explain.stages import Stage, stages_of
from whynan.explain.story import Story, no_harm, tell, typed
from whynan.explain.vocabulary import mechanism
from whynan.files import write_atomically
from whynan.model import (
    Anomaly,
    Diagnosis,
    Operand,
    Site,
    TensorStats,
    dotted,
    number,
)
from whynan.report import gauge
from whynan.report.charts import charts_of
from whynan.report.heatmap import heatmaps_of
from whynan.source.quotes import short_path
from whynan.voice import visible

FOLDER = Path(__file__).parent / "page"
_serial = itertools.count(1)  # two reports in one notebook must not share anchors


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One anomaly with everything that is drawn of it."""

    anomaly: Anomaly
    story: Story
    runs: tuple[tuple[bool, tuple[Stage, ...]], ...]  # folded away or not
    listings: tuple[Listing, ...]
    tree: Branch | None
    operands: tuple[Operand, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiments:
    """The table of `whynan whatif`: what was changed, steps, final loss, what happened."""

    rows: tuple[tuple[str, str, str, str, bool], ...]  # the last one: it survived
    reading: tuple[str, ...]


def write(diagnosis: Diagnosis, path: Path, experiments: Experiments | None = None) -> None:
    """One self-contained file, written whole or not at all."""
    # A file name may hold bytes that are no text.
    text = page(diagnosis, experiments).encode("utf-8", "backslashreplace").decode("utf-8")
    write_atomically(path, text)


def page(diagnosis: Diagnosis, experiments: Experiments | None = None) -> str:
    """A whole document."""
    script = _asset("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return _render(
        "page.html", diagnosis, script=script, script_hash=digest, experiments=experiments
    )


def fragment(diagnosis: Diagnosis) -> str:
    """A piece of a page, without script: what a notebook shows under a cell."""
    return _render("fragment.html", diagnosis, experiments=None, css=_embedded_style())


def tensor_fragment(stats: TensorStats) -> str:
    """One tensor, for a notebook."""
    template = _environment().get_template("tensor.html")
    return template.render(stats=stats, css=_embedded_style())


def _embedded_style() -> Markup:
    """The page's style amid somebody else's: a notebook has rules of its own for tables, lists and
    code. Ours weigh as much as an id, so that they win, and start from the browser's own."""
    alone = re.sub(r"\.whynan(?![\w-])", ".whynan:is(.whynan, #whynan)", _asset("page.css"))
    reset = ".whynan:is(.whynan, #whynan) :where(:not(svg, svg *, img)) { all: revert; }\n"
    return Markup(reset + alone)


def _render(template: str, diagnosis: Diagnosis, **more: Any) -> str:
    page = _environment().get_template(template)
    first = diagnosis.anomalies[0] if diagnosis.anomalies else None
    failing = first.evidence.step if first else None
    dtype = first.origin.dtype if first else "float32"
    return page.render(
        diagnosis=diagnosis,
        faults=[_fault(a, diagnosis) for a in diagnosis.anomalies],
        charts=charts_of(diagnosis.history, failing),
        heatmaps=heatmaps_of(diagnosis.history, dtype, failing),
        failing=failing,
        healthy=no_harm(diagnosis.steps),
        environment=_facts(diagnosis),
        uid=f"w{next(_serial)}",
        **{"css": _asset("page.css"), **more},
    )


def _fault(anomaly: Anomaly, diagnosis: Diagnosis) -> Fault:
    stages = stages_of(anomaly)
    return Fault(
        anomaly=anomaly,
        story=tell(anomaly, typed(diagnosis)),
        runs=tuple((aside, tuple(run)) for aside, run in groupby(stages, lambda s: s.aside)),
        listings=tuple(listings_of(stages, anomaly.evidence.quotes)),
        tree=tree_of(stages, diagnosis.history),
        operands=(*anomaly.origin.inputs, *anomaly.origin.outputs),
    )


def _facts(diagnosis: Diagnosis) -> Mapping[str, str]:
    facts = {
        "script": diagnosis.script,
        **diagnosis.run,
        "outcome": diagnosis.outcome,
        "steps": f"{diagnosis.steps:,}",
        "mode": diagnosis.mode,
        "reproduced": diagnosis.reproduced,
    }
    if "command" in diagnosis.run:
        del facts["script"]
    return {name: text for name, text in {**facts, **diagnosis.versions}.items() if text}


def _anchor(uid: str, k: int, listings: tuple[Listing, ...], site: Site | None) -> str | None:
    """The id of a quoted line, when it is on the page."""
    for at, listing in enumerate(listings):
        if site and site.file == listing.file and site.line in {n.number for n in listing.lines}:
            return f"{uid}-{k}-{at}-L{site.line}"
    return None


def _rows_of(patch: str) -> list[tuple[str, str]]:
    """A diff's lines by kind; the file is named where there are several, and empty lines around a change
    are left out: the button copies all of it."""
    lines = patch.splitlines()
    several = sum(line.startswith("+++ ") for line in lines) > 1
    rows: list[tuple[str, str]] = []
    for line in lines:
        if line.startswith("+++ "):
            rows += [("hunk", line.removeprefix("+++ b/"))] if several else []
        elif not line.startswith(("--- ", "@@")):
            rows.append(({"+": "add", "-": "del"}.get(line[:1], ""), line))
        elif line.startswith("@@") and rows and rows[-1][0] != "hunk":
            rows.append(("hunk", "⋯"))
    kept = [i for i, (kind, line) in enumerate(rows) if kind or line.strip()]
    return rows[kept[0] : kept[-1] + 1] if kept else []


def _index(index: tuple[int, ...] | None) -> str:
    return f"[{', '.join(map(str, index))}]" if index else "it"


def _prose(text: str) -> Markup:
    """Our sentences set code in backticks; what stands between them is escaped as ever."""
    text = visible(str(text))
    parts = [escape(part) for part in text.split("`")]
    if len(parts) % 2 == 0:  # one of them is the user's own
        return escape(text)
    return Markup("").join(
        Markup("<code>{}</code>").format(p) if i % 2 else p for i, p in enumerate(parts)
    )


def _finalized(value: object) -> object:
    """What the user's files say does not turn lines around or hide them."""
    return visible(value) if type(value) is str else value


def _asset(name: str) -> Markup:
    """Our own file: trusted, unlike everything that comes from the run."""
    return Markup((FOLDER / name).read_text(encoding="utf-8"))


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=_finalized,
    )
    environment.filters.update(number=number, dotted=dotted, prose=_prose)
    environment.globals.update(
        gauge=gauge.gauge,
        bars_of=gauge.bars_of,
        shown_path=short_path,
        anchor=_anchor,
        mechanism=mechanism,
        rows_of=_rows_of,
        index=_index,
    )
    return environment

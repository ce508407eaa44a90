"""`whynan whatif`: the same program under one intervention at a time, and what the pattern says."""

from __future__ import annotations

import json
import math
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from whynan import voice
from whynan.errors import UsageError
from whynan.explain.vocabulary import mechanism
from whynan.files import write_atomically
from whynan.model import Diagnosis, number
from whynan.report import html
from whynan.report.json_report import strict
from whynan.run.program import Program
from whynan.trying.search import Runner
from whynan.trying.trial import Ran, Trial, run
from whynan.trying.verdict import steps_to_run

EXPERIMENTS = {
    "float64": "everything in float64",
    "bfloat16": "bfloat16 for float16",
    "clip": "gradients clipped at norm 1",
    "lr_tenth": "learning rate x 0.1",
    "lr_hundredth": "learning rate x 0.01",
    "standardise": "inputs standardised",
    "default_init": "default initialisation",
    "half_batch": "half the batch",
    "no_momentum": "no momentum",
    "no_weight_decay": "no weight decay",
    "same_batch": "the first batch repeated",
}
FLOAT32_MAX = 3.4e38
LEAP = 1e12
FAR = 10.0  # times lower a loss: the others merely survive
TRAINING = {"high_learning_rate", "exploding_gradients", "bad_init", "bad_data", "loss_scale"}
ENOUGH = 3  # experiments in vain before anything is read from them
UNTOUCHED_STEPS = 30  # a healthy baseline is compared over this many steps
HEAD = f"{'':<28}{'steps':>7}{'final loss':>13}  what happened"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One run."""

    name: str
    title: str
    outcome: Literal["survives", "diverges", "dies", "crashes", "does not apply", "too slow"]
    steps: int = 0
    final_loss: float | None = None
    note: str = ""
    mechanism: str = ""  # of its first harm

    def cells(self) -> tuple[str, str, str, str]:
        """As the table shows it: title, steps, final loss, what happened."""
        steps = str(self.steps) if self.outcome in ("survives", "diverges", "dies") else ""
        loss = number(self.final_loss) if self.final_loss is not None else ""
        what = "fails" if self.outcome == "dies" else self.outcome
        note = (
            self.note.replace(self.mechanism, mechanism(self.mechanism))
            if self.mechanism
            else self.note
        )
        return self.title, steps, loss, f"{what}: {note}" if note else what


def row_of(name: str, title: str, ran: Ran) -> Row:
    """What a run showed, in one line."""
    after = ran.diagnosis
    if ran.timed_out:
        return Row(
            name=name, title=title, outcome="too slow", note=f"not done in {ran.seconds:.0f} s"
        )
    if after is None:
        return Row(name=name, title=title, outcome="crashes", note=ran.last_error)
    if name != "baseline" and not ran.applied:
        return Row(name=name, title=title, outcome="does not apply")
    losses = [r.loss for r in after.history if r.loss is not None and math.isfinite(r.loss)]
    final = losses[-1] if losses else None
    if after.anomalies:
        origin = after.anomalies[0].origin
        line = f"line {origin.site.line}: " if origin.site else ""
        what = after.anomalies[0].finding.mechanism
        return Row(
            name=name,
            title=title,
            outcome="dies",
            steps=after.steps,
            final_loss=final,
            note=f"{line}{what}",
            mechanism=what,
        )
    if after.outcome == "crashed":
        return Row(
            name=name, title=title, outcome="crashes", steps=after.steps, note=ran.last_error
        )
    outcome: Literal["survives", "diverges"] = "diverges" if _diverged(losses) else "survives"
    return Row(name=name, title=title, outcome=outcome, steps=after.steps, final_loss=final)


def _diverged(losses: list[float]) -> bool:
    """Finite by name only: beyond float32, or far above where it has been."""
    if not losses:
        return False
    return abs(losses[-1]) > min(FLOAT32_MAX, LEAP * max(1.0, min(map(abs, losses))))


def reading(rows: Sequence[Row], diagnosis: Diagnosis | None = None) -> list[str]:
    """What the pattern points to, with what is known of the program as it is; the strongest first."""
    formula = _of_the_formula(diagnosis)
    survives = any(r.outcome == "survives" for r in rows[1:])
    if rows[0].outcome == "dies" and formula is not None and survives:
        away = "what survives only keeps the values away from where it fails"
        return [f"it is the formula: {formula}; {away}"]
    return _of_the_rows(rows)


def _of_the_formula(diagnosis: Diagnosis | None) -> str | None:
    """What the report itself names: another function holds where this one does not, however it is trained."""
    finding = diagnosis.anomalies[0].finding if diagnosis and diagnosis.anomalies else None
    causes = {c.code: c.evidence for c in finding.causes} if finding is not None else {}
    return None if causes.keys() & TRAINING else causes.get("wrong_function")


def _of_the_rows(rows: Sequence[Row]) -> list[str]:
    base = rows[0]
    tried = {r.name: r for r in rows[1:] if r.outcome in ("survives", "diverges", "dies")}
    alive = {name for name, r in tried.items() if r.outcome == "survives"}
    if base.outcome != "dies":
        return ["the program is healthy as it is; the rows only compare"]
    if not tried:
        return ["no experiment could be run; the table says why"]
    if not alive and len(tried) < ENOUGH:
        return ["too few experiments were run to say what it is"]
    if not alive:
        same = all(r.steps == base.steps for r in tried.values())
        where = "at the same step " if same else ""
        return [f"it fails {where}whatever is changed: look at the formula, or at the data"]
    rates = alive & {"lr_tenth", "lr_hundredth", "clip"}
    found = [*_of_the_type(rows, alive, rates)]
    if "default_init" in alive:
        found.append(
            ("default_init", "with default initialisation: the initial weights are too large")
        )
    if "standardise" in alive and (not rates or _is_far_better(tried, "standardise", rates)):
        found.append(("standardise", "with standardised inputs: the scale of the data"))
    if "same_batch" in alive and not rates:
        found.append(("same_batch", "on the first batch alone: some later batch holds the trigger"))
    if "no_weight_decay" in alive:
        found.append(("no_weight_decay", "without weight decay: the decay drives the weights"))
    slower = _best(tried, alive & {"lr_tenth", "lr_hundredth"})
    if slower is not None:
        found.append((slower, "at a lower learning rate: the updates are too large"))
    elif "clip" in alive:
        found.append(("clip", "with clipping: single large gradients"))
    if "no_momentum" in alive and not rates:
        found.append(("no_momentum", "without momentum: the accumulated updates overshoot"))
    if "half_batch" in alive and not found:
        found.append(("half_batch", "with other batches: it depends on which samples meet"))
    if not found:
        return ["more than one change helps; the table shows which"]
    best = _best(tried, {name for name, _ in found})
    near = [(n, text) for n, text in found if best is None or not _is_far_better(tried, best, {n})]
    return [f"it survives {text}" for _, text in near]


def _of_the_type(
    rows: Sequence[Row], alive: set[str], rates: set[str]
) -> Iterator[tuple[str, str]]:
    """float64 has more range and more digits, bfloat16 has only more range than float16."""
    narrow = next((r.outcome for r in rows if r.name == "bfloat16"), "does not apply")
    if "bfloat16" in alive and not rates:
        yield "bfloat16", "in a type of wider range: the values are right, the type is narrow"
    elif "float64" in alive and not rates:
        only = " only" if alive == {"float64"} else ""
        if narrow == "does not apply" and "overflow" in rows[0].note:
            yield "float64", f"in float64{only}: the values are right, the type is narrow"
        else:
            yield (
                "float64",
                f"in float64{only}: the type has too few digits, as where values cancel",
            )


def _best(tried: Mapping[str, Row], names: set[str]) -> str | None:
    """The one that got furthest, as far as that was measured."""
    known = [(r.final_loss, n) for n, r in tried.items() if n in names and r.final_loss is not None]
    return min(known)[1] if known else next((n for n in tried if n in names), None)


def _is_far_better(tried: Mapping[str, Row], name: str, others: set[str]) -> bool:
    mine = tried[name].final_loss
    best = _best(tried, others)
    theirs = tried[best].final_loss if best is not None else None
    return mine is not None and theirs is not None and theirs > 0 and mine < theirs / FAR


@dataclass
class WhatIf:
    """The table as it grows."""

    program: Program
    run: Runner
    budget_s: float

    def __post_init__(self) -> None:
        self.rows: list[Row] = []
        self.interrupted = False
        self.baseline: Diagnosis | None = None

    def go(self) -> WhatIf:
        deadline = time.monotonic() + self.budget_s
        try:
            voice.now("running it as it is ...")
            base = self.run(Trial(program=self.program), limit_s=self.budget_s)
            if base.diagnosis is None and base.code == UsageError.exit_code:
                raise UsageError(base.last_error.removeprefix("whynan: "))  # torch was not watched
            voice.now("")
            say(HEAD)
            self.baseline = base.diagnosis
            self._add(row_of("baseline", "as it is", base))
            failed_at = _failed_at(base.diagnosis)
            limit = UNTOUCHED_STEPS if failed_at is None else steps_to_run(failed_at)
            for name, title in EXPERIMENTS.items():
                left = deadline - time.monotonic()
                if left < 1:
                    say(f"the {self.budget_s:g} s were used up; `--budget` gives more")
                    break
                trial = Trial(
                    program=self.program,
                    max_steps=limit,
                    finite_from=failed_at,
                    intervention=name,
                    rank=_rank(base.diagnosis),
                )
                voice.now(f"trying: {title} ...")
                self._add(row_of(name, title, self.run(trial, limit_s=left)))
        except KeyboardInterrupt:
            self.interrupted = True
            voice.now("")
            say("interrupted; the rows above stand")
        return self

    def _add(self, row: Row) -> None:
        self.rows.append(row)
        voice.now("")
        _, steps, loss, what = row.cells()
        first, *more = textwrap.wrap(what, 80 - 50, break_on_hyphens=False) or [""]
        say(f"{row.title:<28}{steps:>7}{loss:>13}  {first}")
        for part in more:
            say(f"{'':<50}{part}")


def _failed_at(base: Diagnosis | None) -> int | None:
    return base.anomalies[0].evidence.step if base is not None and base.anomalies else None


def _rank(base: Diagnosis | None) -> int | None:
    return base.anomalies[0].evidence.rank if base is not None and base.anomalies else None


def whatif(
    program: Program,
    *,
    json_path: Path | None = None,
    html_path: Path | None = None,
    budget_s: float = 300.0,
) -> int:
    """Print the table and what it says; 3 if the program as it is does harm."""
    for option, path in (("json", json_path), ("html", html_path)):
        if path is not None and not path.absolute().parent.is_dir():
            raise UsageError(f"--{option} {path}: the folder does not exist")
    table = WhatIf(program=program, run=run, budget_s=budget_s).go()
    sentences = reading(table.rows, table.baseline) if table.rows else []
    for sentence in sentences:
        say(textwrap.fill(f"   = inferred: {sentence}", 80, subsequent_indent=" " * 6))
    if json_path is not None:
        content = {
            "schema": "whynan.whatif/1",
            "script": program.target,
            "rows": [asdict(row) for row in table.rows],
            "reading": sentences,
        }
        text = json.dumps(strict(content), indent=2) + "\n"
        _try(json_path, lambda: write_atomically(json_path, text))
    if html_path is not None:
        _try(html_path, lambda: write_page(table, sentences, html_path))
    if table.interrupted:
        return 130
    return 3 if table.rows and table.rows[0].outcome == "dies" else 0


def _try(path: Path, write: Callable[[], None]) -> None:
    """Of minutes of runs nothing is lost to a full disk but the file on it."""
    try:
        write()
    except OSError as error:
        say(f"whynan: could not write {path}: {error}")


def write_page(table: WhatIf, sentences: list[str], path: Path) -> None:
    """The report of the program as it is, with the table."""
    if table.baseline is None:
        say(f"{path} was not written: the program as it is left no report")
        return
    rows = tuple((*row.cells(), row.outcome == "survives") for row in table.rows)
    html.write(table.baseline, path, html.Experiments(rows=rows, reading=tuple(sentences)))


def say(text: str) -> None:
    voice.write(f"{text}\n")

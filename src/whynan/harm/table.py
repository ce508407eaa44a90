"""What counts as harm, as rows of events: the ledger's rules, its test and a page for users in one.

An event is a word, and what was non-finite there: `backward nan`, `step nan` (the gradients that an
update is made with), `updated nan` (a parameter afterwards), `text nan` (a line that is printed).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from whynan.harm.ledger import Ledger, Sign
from whynan.model import Sink

SILENCE = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A program in a few words, and what whynan says of it."""

    events: str
    harm: str  # the subject that is told; "": nothing is
    because: str


ROWS = (
    Row("backward nan; spoilt; step nan", "loss", "an update is made with the gradients of a NaN loss"),
    Row("backward; step nan", "gradient", "an update is made with a NaN gradient"),
    Row("backward nan; backward; step nan", "loss", "gradients add up: the first loss spoils them all"),
    Row("backward nan; step", SILENCE, "the loss is NaN and its gradients are not: nothing is spoilt"),
    Row("backward nan; spoilt; dropped; backward; step", SILENCE, "the program throws that batch away"),
    Row("backward nan; spoilt; step", SILENCE, "the program cleans the gradients before it steps"),
    Row("backward nan; left out; backward; step", SILENCE, "GradScaler leaves the step out, as it should"),
    Row("left out; collapsed", "loss scale", "every step is left out, and the loss scale is worn down"),
    Row("backward; clipped inf; step", "norm", "an infinite norm turns every clipped gradient to 0"),
    Row("backward; step; updated nan", "parameter", "the update itself overflows"),
    Row("backward; step; updated", SILENCE, "an ordinary step"),
    Row("spoils nan", "parameter", "a buffer, an average or a cast weight becomes non-finite"),
    Row("backward wrong; step", "loss", "an overflow was absorbed into a wrong loss, and that is learnt"),
    Row("backward wrong; dropped; step", SILENCE, "a wrong loss that nobody steps with"),
    Row("backward nan; spoilt; by hand nan", "loss", "a hand-written update writes NaN into a weight"),
    Row("backward nan; by hand", SILENCE, "a hand-written update left that batch out"),
    Row("trial; lost; trial; step; updated; end", SILENCE, "a search over learning rates rejects what diverges"),
    Row("trial; lost; trial; lost; end", "gradient", "no trial of the search is left"),
    Row("range test; end", SILENCE, "a test raises the rate until nothing is learnt any more"),
    Row("raises nan", "exception", "an exception complains of a non-finite value"),
    Row("raises", SILENCE, "an exception about something else"),
    Row("read nan; raises nothing", "read", "a test of the program's own for finite values raises"),
    Row("read nan; exit 1", "read", "the program reads a NaN and ends with an error"),
    Row("read nan; exit 0", SILENCE, "a value that is only read: a line search, a sampler, a log"),
    Row("read nan; asked nan; end", "read", "a traced block leaves a number behind that it read"),
    Row("read nan; asked; end", SILENCE, "a traced block reads one and leaves nothing bad behind"),
    Row("step; updated; backward wrong; asked; end", "loss", "a traced block ends before its step"),
    Row("read nan; text nan; end", "read", "it prints a NaN, and that is its last word"),
    Row("read nan; text nan; text 0.5; end", SILENCE, "the same line prints a finite value afterwards"),
    Row("read nan; text nan; step; updated; end", SILENCE, "training goes on: it was not the last word"),
    Row("read nan; step; updated; kept nan; end", "read", "it prints a number that keeps what it read: the sum of all losses"),
    Row("read nan; step; updated; text nan; end", SILENCE, "it prints a NaN that has nothing to do with what it read"),
    Row("read nan; step; updated; kept nan; kept 0.5; end", SILENCE, "the same line prints a finite value in the next epoch"),
    Row("text nan; end", SILENCE, "a text about NaN, and no value was read"),
    Row("returns nan; end", "output", "the model's last output is NaN"),
    Row("returns nan; returns; end", SILENCE, "the model is called again and gives a finite one"),
    Row("returns nan; cleaned; end", SILENCE, "nan_to_num, where or nanmean deals with the output"),
    Row("returns nan; backward; step; end", SILENCE, "a loss is made of the output, and decides"),
    Row("saves nan; end", "saved", "a NaN is written to the last checkpoint"),
    Row("saves nan; saves; end", SILENCE, "the same checkpoint is written again, finite"),
    Row("backward nan; spoilt; end", "loss", "a program that never steps leaves NaN gradients behind"),
    Row("step; updated; backward nan; spoilt; end", SILENCE, "training ends before a step is taken with it"),
    Row("backward; step; backward nan; updated; end", SILENCE, "a line search rejects what it tried"),
)  # fmt: skip

_NORM, _SCALE = "norm", "loss scale"


def replay(events: str) -> list[str]:
    """Tell a ledger of these events; the subjects of all that counted."""
    ledger = Ledger()
    counted: list[Sign] = []
    for event in events.split("; "):
        word, _, value = event.partition(" ")
        if event in ("left out", "by hand", "by hand nan"):
            word, value = event[:8].strip() if "left" in event else "by hand", event[8:].strip()
        counted += _tell(ledger, word, value)
    return [sign.subject for sign in counted]


def _tell(ledger: Ledger, word: str, value: str) -> list[Sign]:
    match word:
        case "backward":
            ledger.backward_begins(_seen("loss", "loss", value))
        case "spoilt":
            ledger.backward_ends(spoilt=True)
        case "dropped":
            ledger.gradients_dropped()
        case "clipped":
            return ledger.step_begins(norms=_seen("gradient", _NORM, value))
        case "step":
            return ledger.step_begins(_seen("gradient", "gradient", value))
        case "updated":
            return ledger.step_ends(_seen("parameter", "parameter", value))
        case "left out":
            ledger.step_left_out()
        case "collapsed":
            return ledger.scale_collapsed(Sign(sink="gradient", subject=_SCALE))
        case "spoils":
            return ledger.state_spoilt(_seen("parameter", "parameter", value))
        case "by hand":
            return ledger.updated_by_hand(_seen("parameter", "parameter", value))
        case "trial":
            ledger.trial_begins("search")
        case "lost":
            ledger.trial_lost("search", Sign(sink="gradient", subject="gradient"))
        case "range":
            ledger.trial_lost("test", Sign(sink="gradient", subject="gradient"), ends_so=True)
        case "read":
            ledger.read("read here", next(iter(_seen("observed", "read", value)), None))
        case "asked":
            ledger.asked_about(numbers=bool(value))
        case "text":
            ledger.text_shown("print here", f"loss {value}\n")
        case "kept":
            ledger.text_shown("print here", f"loss {value}\n", lambda sign: True)
        case "returns":
            ledger.model_returned("model", next(iter(_seen("output", "output", value)), None))
        case "cleaned":
            ledger.output_cleaned("model")
        case "saves":
            ledger.saved("save here", next(iter(_seen("observed", "saved", value)), None))
        case "raises":
            complaint = next(
                iter(_seen("exception", "exception", value.replace("nothing", ""))), None
            )
            return ledger.raised(complaint, bool(value))
        case "exit":
            return ledger.exits(int(value))
        case "end":
            return ledger.ends()
        case _:
            raise ValueError(f"{word!r} is no event")
    return []


def _seen(sink: Sink, subject: str, value: str) -> list[Sign]:
    if not value:
        return []
    number = math.nan if value == "nan" else None
    return [Sign(sink=sink, subject=subject, value=number, wrong=value == "wrong")]


def page() -> str:
    """The table as a page for users."""
    lines = [
        "# What counts as harm",
        "",
        "A NaN by itself is not harm, and whynan does not guess what a program intends. Harm is an",
        "effect: something is spoilt by it, the program ends by it, or it is the last thing the program",
        "says. Everything else is silence. Each row is a program in a few words; the same rows test the",
        "code that decides (`harm/ledger.py`).",
        "",
        "| what happens | whynan | because |",
        "|---|---|---|",
    ]
    for row in ROWS:
        told = f"tells of the {row.harm}" if row.harm else "is silent"
        lines.append(f"| {row.events} | {told} | {row.because} |")
    lines += [
        "",
        "`backward nan` is a backward pass from a loss that is NaN (`wrong`: finite, but an overflow was",
        "absorbed into it), `spoilt` that it left non-finite gradients, `step nan` an update with",
        "non-finite gradients, `updated nan` a parameter, buffer or optimizer state that is non-finite",
        "after it, `by hand` an update without an optimizer, `text nan` a printed line. `trial` is an",
        "optimizer made with a rate, decay or momentum that a loop goes through, or in a search of a",
        "library's (optuna, ray.tune, ...); `lost`: what happened in it would have counted otherwise.",
        "A trial that begins with the weights that the one before has spoilt is no trial: that is told.",
        "",
        "What spoils state or ends the program stops the run as `--on-anomaly` says. A last word is told",
        "when the program ends, and only if it was printed, saved or returned by the outermost model after",
        "the last training step, and nothing finite came from the same place afterwards. What is not",
        "finite and the right answer is no harm where it is only shown: decibels of a noise of exactly 0,",
        "the recall of a class that does not occur, among others that do.",
        "",
    ]  # fmt: skip
    return "\n".join(lines)


if __name__ == "__main__":
    print(page(), end="")

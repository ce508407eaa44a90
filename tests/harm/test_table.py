"""The rows of `harm/table.py` are what the ledger does, and what the page says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from whynan.harm.ledger import Ledger, Sign
from whynan.harm.table import ROWS, Row, page, replay

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.events)
def test_the_ledger_does_what_the_row_says(row: Row) -> None:
    assert replay(row.events) == ([row.harm] if row.harm else [])


def test_an_event_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="'exlodes' is no event"):
        replay("exlodes")


def test_the_page_for_users_is_the_table() -> None:
    assert (DOCS / "harm.md").read_text() == page()


def test_the_judge_needs_no_torch() -> None:
    check = "import whynan.harm.table, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def test_what_was_silent_is_counted_with_its_step() -> None:
    ledger = Ledger()
    ledger.backward_begins([Sign(sink="loss", subject="loss", step=168)])
    ledger.step_begins()
    assert [(s.what, s.step) for s in ledger.silent] == [
        ("a loss was non-finite with finite gradients", 168)
    ]


@pytest.mark.parametrize(("step", "counted"), [(4, []), (5, ["loss"]), (9, ["loss"])])
def test_a_changed_program_is_asked_for_finite_losses(step: int, counted: list[str]) -> None:
    """From the step on that failed: what was NaN before it, harmlessly, may stay so."""
    loss = Sign(sink="loss", subject="loss", step=step)
    for update in (Ledger.step_begins, Ledger.updated_by_hand, Ledger.ends):
        ledger = Ledger(finite_from=5)
        ledger.backward_begins([loss])
        assert [sign.subject for sign in update(ledger)] == counted
    ledger.gradients_dropped()
    assert ledger.ends() == []


def test_a_line_that_only_mentions_information_is_no_value() -> None:
    ledger = Ledger()
    ledger.read("here", Sign(sink="observed", subject="read"))
    ledger.text_shown("there", "INFO: mean of 3 infos, nanmean, finf\n")
    assert ledger.ends() == []


@pytest.mark.parametrize(
    "text", ["nan\n", "loss=nan,", "-inf", "tensor([nan, 1.])", "NaN loss", "[inf]"]
)
def test_a_value_is_recognised_in_a_printed_line(text: str) -> None:
    ledger = Ledger()
    ledger.read("here", Sign(sink="observed", subject="read"))
    ledger.text_shown("there", text)
    assert [s.subject for s in ledger.ends()] == ["read"]

"""`whynan whatif`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from whynan.cli.program import SETTINGS, file_option, takes_program
from whynan.cli.showing import Page, open_option, poured_of

if TYPE_CHECKING:
    from whynan.run.program import Program


@click.command(context_settings=SETTINGS)
@file_option("--json", "json_path", help="Also write the table as JSON; `-` for standard output.")
@file_option("--html", "html_path", help="Also write the report with the table as one HTML page.")
@open_option
@click.option(
    "--budget",
    type=click.FloatRange(min=1),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="Time for all runs together.",
)
@takes_program
def whatif(
    program: Program,
    json_path: Path | None,
    html_path: Path | None,
    is_opened: bool,
    budget: float,
) -> int:
    """Run SCRIPT again and again, each time with one thing changed from outside.

    float64, bfloat16, clipping, a lower learning rate, standardised inputs, default
    initialisation, half the batch, no momentum, no weight decay, one batch repeated. The table
    says which of them the program survives, and below it what that points to. The script's own
    output is not shown. Ctrl-C keeps the rows that are done.

    Exit code 3 if the script as it is does harm.

    \b
    whynan whatif train.py --lr 0.1
    """
    from whynan.trying.whatif import whatif as run_whatif

    page = Page(html_path, is_opened)
    json_path, poured = poured_of(json_path)
    try:
        code = run_whatif(program, json_path=json_path, html_path=page.path, budget_s=budget)
    finally:
        if poured is not None:
            poured.out()
    page.show()
    return code

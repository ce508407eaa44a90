"""`whynan fix`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from whynan.cli.program import SETTINGS, file_option, takes_program
from whynan.cli.showing import ALONE, Page, open_option, poured_of

if TYPE_CHECKING:
    from whynan.run.program import Program


@click.command(context_settings=SETTINGS)
@click.option("--apply", is_flag=True, help="Write the verified change to the files.")
@file_option("--json", "json_path", help=f"Also write the report as JSON{ALONE}.")
@file_option("--html", help="Also write the report, with the change, as a web page.")
@open_option
@click.option(
    "--budget",
    type=click.FloatRange(min=0),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="Processor time for trying changes.",
)
@file_option("--save-batch", help="Write the batch that failed there, for torch.load.")
@takes_program
def fix(
    program: Program,
    apply: bool,
    json_path: Path | None,
    html: Path | None,
    is_opened: bool,
    budget: float,
    save_batch: Path | None,
) -> int:
    """Run SCRIPT, find where a NaN came from, and find a change that removes it.

    Each change is tried in a fresh process, with the same arguments, past the step that failed:
    the same mathematics in a stable form first, then guards, then changes to the training. The
    files stay as they are unless --apply is given; then they are written at once or not at all.

    Exit code 0 with a verified change, 3 without one, the script's own if it does no harm.

    \b
    whynan fix train.py --lr 0.1
    whynan fix --apply --budget 300 train.py
    """
    from whynan.trying.fixing import FixOptions
    from whynan.trying.fixing import fix as find_fix

    page = Page(html, is_opened)
    json_path, poured = poured_of(json_path)
    options = FixOptions(
        apply=apply, json=json_path, html=page.path, budget_s=budget, save_batch=save_batch
    )
    try:
        code = find_fix(program, options)
    finally:
        if poured is not None:
            poured.out()
    page.show()
    return code

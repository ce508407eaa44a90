"""`whynan report`."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import click

from whynan.cli.program import file_option
from whynan.cli.showing import Page, open_option


@click.command()
@file_option(
    "--json",
    "json_path",
    help="Also write the report as JSON; `-` for standard output instead of text.",
)
@file_option("--html", "html_path", help="Also write it as one HTML page.")
@file_option("--tensorboard", "folder", help="Also write TensorBoard events.")
@click.option(
    "--format",
    "style",
    type=click.Choice(["text", "github", "sarif", "junit"]),
    default="text",
    show_default=True,
    help="What to print: the report, or what a service reads.",
)
@open_option
@click.argument("recording", type=click.Path(path_type=Path))
def report(
    json_path: Path | None,
    html_path: Path | None,
    folder: Path | None,
    style: str,
    is_opened: bool,
    recording: Path,
) -> int:
    """Draw a saved run again: RECORDING is the file that the run left.

    It needs neither the program nor PyTorch, and shows what the run itself showed.

    \b
    whynan report run.whynan
    whynan report run.whynan --html report.html
    whynan report run.whynan --json report.json --tensorboard runs/
    """
    import sys

    from whynan.cli.patience import while_waiting
    from whynan.run import reopen

    page = Page(html_path, is_opened)
    with while_waiting(f"reading {recording}"):
        diagnosis = reopen.reopen(recording)
    if str(json_path) == "-":
        from whynan.report.json_report import dumps

        click.echo(dumps(diagnosis), nl=False)
        json_path = None
    elif style != "text":
        from whynan.report.remarks import Format, as_format

        click.echo(as_format(diagnosis, cast(Format, style)), nl=False)
    else:
        reopen.show(diagnosis, sys.stdout)
    with while_waiting("writing"):
        reopen.write(diagnosis, json=json_path, html=page.path, tensorboard=folder)
    page.show()
    return 0

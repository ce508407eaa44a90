"""`whynan report`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option(
    "--json", "json_path", type=click.Path(path_type=Path), help="Also write the report as JSON."
)
@click.argument("recording", type=click.Path(path_type=Path))
def report(json_path: Path | None, recording: Path) -> int:
    """Draw a saved run again: RECORDING is the file that the run left.

    It needs neither the program nor PyTorch, and shows what the run itself showed.

    \b
    whynan report run.whynan
    whynan report run.whynan --json report.json
    """
    import sys

    from whynan import reopen

    diagnosis = reopen.reopen(recording)
    reopen.show(diagnosis, sys.stdout)
    if json_path is not None:
        reopen.write_json(diagnosis, json_path)
    return 0

"""`whynan doctor`."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from whynan.cli.program import file_option
from whynan.errors import UsageError, WhynanError

HARM = 3


@click.command()
@click.option("--names", is_flag=True, help="Show every name taken from the inside of torch.")
@click.option("--quick", is_flag=True, help="Only say what there is: no self-test.")
@file_option("--json", "json_path", help="Also write it as JSON; `-` for standard output instead of text.")  # fmt: skip
def doctor(names: bool, quick: bool, json_path: Path | None) -> int:
    """Say whether whynan works here: what a report of a fault begins with.

    Versions, devices, and what the torch that is installed lacks; then a self-test on every
    device: four faults have to be found at their lines, a healthy training has to learn the same
    to the last bit, and the cost of a step is measured. It takes less than a minute.

    Exit codes: 0 all is well, 3 the self-test failed, 2 this torch cannot be watched.
    """
    from whynan.doctor.facts import gather
    from whynan.doctor.selftest import check_up
    from whynan.doctor.wording import as_json, closing, lines_of, lines_of_checkup
    from whynan.files import write_atomically

    silent = json_path is not None and str(json_path) == "-"
    try:
        facts = gather()
    except WhynanError as error:
        raise UsageError(str(error)) from error  # as for every command that needs it
    if not silent:
        click.echo("\n".join(lines_of(facts, names=names)))
    checkups = []
    with tempfile.TemporaryDirectory(prefix="whynan-doctor-") as folder:
        for device in () if quick else facts.devices:
            checkups.append(check_up(device.kind, Path(folder)))
            if not silent:
                click.echo("\n".join(["", *lines_of_checkup(checkups[-1])]))
    if checkups and not silent:
        click.echo(f"\n{closing(checkups)}")
    if silent:
        click.echo(as_json(facts, checkups))
    elif json_path is not None:
        try:
            write_atomically(json_path, as_json(facts, checkups) + "\n")
        except OSError as error:
            raise UsageError(f"cannot write {json_path}: {error.strerror or error}") from error
    return 0 if all(checkup.is_well for checkup in checkups) else HARM

"""`whynan doctor`."""

from __future__ import annotations

import click

from whynan.errors import UsageError, WhynanError


@click.command()
@click.option("--names", is_flag=True, help="Show every name taken from the inside of torch.")
def doctor(names: bool) -> None:
    """Say whether the torch that is installed here can be watched.

    And what is lost in it: a name of torch's inside that other releases have.
    Exit code 2 where it cannot be watched.
    """
    from whynan.run.doctor import examine

    try:
        for line in examine(names=names):
            click.echo(line)
    except WhynanError as error:
        raise UsageError(str(error)) from error  # as for every command that needs it

"""Which program a command line names: a script, or a module with -m."""

from __future__ import annotations

import click

from whynan.launch import Program


def program_of(module: str | None, script: str | None, args: tuple[str, ...]) -> Program:
    """With -m, the first plain argument is already the module's own."""
    if module is not None:
        given = (script, *args) if script is not None else args
        return Program(target=module, args=tuple(given), is_module=True)
    if script is None:
        raise click.UsageError("name a script to run, or a module with -m")
    return Program(target=script, args=args)

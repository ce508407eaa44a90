"""`whynan explain`."""

from __future__ import annotations

import click


@click.command()
@click.option("--list", "list_all", is_flag=True, help="List every code in one line each.")
@click.argument("code", required=False)
def explain(list_all: bool, code: str | None) -> None:
    """Explain a CODE from a report: what it catches, why it hurts, what to use instead.

    CODE is a code (N012), its name (log-of-nonpositive), a mechanism (log_nonpositive) or the name
    of a lint pattern (log-softmax).
    """
    from whynan.explain.rule_text import pages, table

    if list_all:
        click.echo(table(), nl=False)
    elif code is None:
        raise click.UsageError("name a code, or use --list")
    else:
        click.echo(pages(code), nl=False)

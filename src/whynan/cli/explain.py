"""`whynan explain`."""

from __future__ import annotations

import click


@click.command()
@click.option("--list", "list_all", is_flag=True, help="List every code in one line each.")
@click.argument("code", required=False)
def explain(list_all: bool, code: str | None) -> None:
    """Explain a CODE from a report: what it catches, why it hurts, what to use instead.

    CODE is a code (N012), its name (log-of-nonpositive) or a mechanism (log_nonpositive).
    """
    from whynan.explain.rule_text import find_rule, page
    from whynan.registry import rules

    if list_all:
        for rule in rules():
            click.echo(f"{rule.code}  {rule.slug:<22} {rule.title}")
    elif code is None:
        raise click.UsageError("name a code, or use --list")
    else:
        click.echo(page(find_rule(code)), nl=False)

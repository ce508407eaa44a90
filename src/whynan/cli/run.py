"""`whynan run`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--mode",
    type=click.Choice(["trace"]),
    default="trace",
    show_default=True,
    help="How closely to watch: `trace` records every operation.",
)
@click.option(
    "--on-anomaly",
    type=click.Choice(["stop", "warn"]),
    default="stop",
    show_default=True,
    help="Stop the script at the first harm, or report and let it go on.",
)
@click.option(
    "--json", "json_path", type=click.Path(path_type=Path), help="Also write the report as JSON."
)
@click.option(
    "--max-steps", type=click.IntRange(min=1), help="Stop after this many optimizer steps."
)
@click.option("-m", "module", metavar="MODULE", help="Run a module, as `python -m MODULE` does.")
@click.argument("script", required=False)
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def run(
    mode: str,
    on_anomaly: str,
    json_path: Path | None,
    max_steps: int | None,
    module: str | None,
    script: str | None,
    args: tuple[str, ...],
) -> int:
    """Run SCRIPT as `python SCRIPT ARGS...` would, and say where a NaN came from.

    The script is not changed. Its output, exit code, random numbers and results stay its own;
    whynan writes to standard error. When a non-finite value does harm (reaches the loss, a
    gradient, a parameter, a printed value, ...), the report names the line that made the first
    one, and whynan exits with 3.

    \b
    whynan run train.py --lr 0.1 --epochs 3
    whynan run --json report.json train.py
    whynan run -m mypackage.train --config small.toml
    """
    from whynan.launch import Program
    from whynan.pipeline import Run, RunOptions

    if module is not None:
        given = (script, *args) if script is not None else args
        program = Program(target=module, args=tuple(given), is_module=True)
    elif script is None:
        raise click.UsageError("name a script to run, or a module with -m")
    else:
        program = Program(target=script, args=args)
    options = RunOptions(
        on_anomaly="warn" if on_anomaly == "warn" else "stop", json=json_path, max_steps=max_steps
    )
    return Run(program, options).go()

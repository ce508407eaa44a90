"""`whynan run`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, cast

import click

from whynan import voice
from whynan.cli.program import SETTINGS, file_option, takes_program
from whynan.cli.showing import ALONE, Page, open_option, output_of, poured_of

if TYPE_CHECKING:
    from whynan.report.remarks import Format
    from whynan.run.program import Program


@click.command(context_settings=SETTINGS)
@click.option(
    "--mode",
    type=click.Choice(["auto", "trace", "guard"]),
    default="auto",
    show_default=True,
    help="How closely to watch. `auto` looks at each step cheaply and repeats a bad "
    "one under the tracer; `trace` records every operation; `guard` only looks.",
)
@click.option(
    "--on-anomaly",
    type=click.Choice(["stop", "skip", "warn"]),
    default="stop",
    show_default=True,
    help="Stop the script at the first harm; or skip that batch and go on training; or only "
    "report.",
)
@file_option("--json", help=f"Also write the report as JSON{ALONE}.")
@file_option("--html", help="Also write the report as a web page.")
@file_option(
    "--tensorboard",
    metavar="DIR",
    help="Also write history, histograms of the layers and the report for TensorBoard.",
)
@click.option(
    "--format",
    "style",
    type=click.Choice(["text", "github", "sarif", "junit"]),
    default="text",
    show_default=True,
    help="Also report to a service: `github` prints annotations, `sarif` and `junit` write the file "
    "that --output names.",
)
@file_option(
    "--output", help="Where --format goes; `whynan.sarif` or `whynan-junit.xml` if not given."
)
@click.option(
    "--max-steps",
    type=click.IntRange(min=1),
    help="Stop after this many optimizer steps.",
)
@click.option(
    "--rerun/--no-rerun",
    default=None,
    help="Where the run itself cannot show how harm came about, run the program once more. "
    "If not said: only after less than two minutes.",
)
@file_option("--recording", help="Also save what was recorded, for `whynan report`.")
@file_option(
    "--capsule",
    metavar="DIR",
    help="On harm, keep what repeats the step elsewhere: weights, optimizer state, batch and "
    "random states, as safetensors and JSON.",
)
@file_option(
    "--save-batch",
    metavar="P",
    help="On harm, write the failing batch there, for `torch.load`: the model's inputs, the guilty "
    "sample and the dataset's indices.",
)
@file_option(
    "--repro",
    metavar="DIR",
    help="On harm, write the failing operation there as a script of its own: `whynan repro`.",
)
@open_option
@click.option("--quiet", is_flag=True, help="No closing line after a healthy run on a terminal.")
@click.option("--fix", is_flag=True, help="On harm, find a change that removes it: `whynan fix`.")
@click.option(
    "--climb",
    type=click.IntRange(min=0),
    metavar="STEP",
    help="Only look, and compare what is compiled with eager mode where that step goes bad: for jobs "
    "of ranks; else it is done by itself.",
)
@click.option("--keep-operands", is_flag=True, hidden=True)
@click.option("--aside", type=(str, float), hidden=True)
@click.option("--trace-from", type=click.IntRange(min=0), hidden=True)
@click.option("--finite-from", type=click.IntRange(min=0), hidden=True)
@takes_program
def run(
    program: Program,
    mode: str,
    on_anomaly: str,
    json: Path | None,
    html: Path | None,
    tensorboard: Path | None,
    style: str,
    output: Path | None,
    max_steps: int | None,
    rerun: bool | None,
    recording: Path | None,
    capsule: Path | None,
    save_batch: Path | None,
    repro: Path | None,
    is_opened: bool,
    quiet: bool,
    fix: bool,
    keep_operands: bool,
    climb: int | None,
    aside: tuple[str, float] | None,
    trace_from: int | None,
    finite_from: int | None,
) -> NoReturn:
    """Run SCRIPT as `python SCRIPT ARGS...` would, and say where a NaN came from.

    The script is not changed. Its output, exit code, random numbers and results stay its own;
    whynan writes to standard error. When a non-finite value does harm (reaches the loss, a
    gradient, a parameter, a printed value, ...), the report names the line that made the first
    one, and whynan exits with 3.

    \b
    whynan run train.py --lr 0.1 --epochs 3
    whynan run --json report.json train.py
    whynan run -m mypackage.train --config small.toml

    In a job script every option can be set by an environment variable, such as WHYNAN_MODE or
    WHYNAN_HTML, and in `[tool.whynan.run]` of pyproject.toml. Options win over the environment,
    and the environment over the file.
    """
    from whynan.run.laid import Aside
    from whynan.run.outputs import Mode, Policy, RunOptions
    from whynan.run.run import Run

    page = Page(html, is_opened)
    html = page.path
    json, poured = poured_of(json)
    options = RunOptions(
        mode=cast(Mode, mode) if climb is None else "guard",
        on_anomaly=cast(Policy, on_anomaly),
        json=json,
        poured=poured,
        html=html,
        tensorboard=tensorboard,
        recording=recording,
        format=None if style == "text" else cast("Format", style),
        output=output_of(style, output),
        max_steps=max_steps,
        rerun=rerun,
        capsule=capsule,
        save_batch=save_batch,
        keep_operands=keep_operands or repro is not None,
        trace_from=trace_from,
        finite_from=finite_from,
        climb=climb,
        aside=None if aside is None else Aside(folder=aside[0], since_s=aside[1]),
        fixes_follow=fix,
        is_quiet=quiet,
    )
    if repro is not None:
        from whynan.repro.making import check_folder

        repro = repro.absolute()
        check_folder(repro)
    originals = None
    if fix:
        from whynan.repair.originals import Originals
        from whynan.run.program import own_part, program_root

        originals = Originals(program_root(program), own_part(program).target)
    watched = Run(program, options)
    started = time.time()
    outcome = watched.go()
    code, diagnosis = outcome.code, outcome.diagnosis
    if save_batch is not None and code == 3:
        _tell_batch(save_batch, started)
    if repro is not None and code == 3 and outcome.recording.evidence:
        with watched.findings.libraries.in_use():
            from whynan.cli.repro import tell

            tell(outcome.recording, repro)
    if originals is not None and diagnosis is not None:
        with watched.findings.libraries.in_use():
            from whynan.trying.fixing import FixOptions, repair

            repair(program, diagnosis, FixOptions(json=json, html=html, told=True), originals)
        if poured is not None:
            poured.out()
    elif fix and code == 3 and watched.findings.lockstep is None:
        voice.say("--fix is for programs of one process; `whynan fix` tries changes on all ranks")
    if not watched.findings.telling.is_silent:
        page.show()
    if code == 3:
        voice.let_go_of_broken_streams()
    # What the program has printed is its own: if it cannot be written, Python says so, with its code.
    sys.exit(code)


def _tell_batch(path: Path, started: float) -> None:
    """A file of an earlier run is not this run's batch."""
    if path.exists() and path.stat().st_mtime >= started - 1:
        voice.say(f"the failing batch is in {path}")
    else:
        voice.say("no batch was written: no model or DataLoader was in use")

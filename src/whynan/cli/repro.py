"""`whynan repro`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from whynan import voice
from whynan.cli.program import SETTINGS, file_option, program_of
from whynan.errors import UsageError

if TYPE_CHECKING:
    from whynan.recording import Recording
    from whynan.run.program import Program

USUAL = "whynan-repro"


@click.command(context_settings=SETTINGS)
@file_option("--out", metavar="DIR", help=f"Where to write it; `{USUAL}` if not given.")
@file_option("--capsule", metavar="DIR", help="Make it from what `whynan run --capsule` kept.")
@click.option(
    "--keep-values",
    is_flag=True,
    help="Keep the values of the run. Without it they are replaced where it still fails.",
)
@click.option(
    "--budget",
    type=click.FloatRange(min=0),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="Time for making it small.",
)
@click.option("-m", "module", metavar="MODULE", help="Run a module, as `python -m` does.")
@click.argument("given", metavar="RECORDING | SCRIPT", required=False)
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def repro(
    out: Path | None,
    capsule: Path | None,
    keep_values: bool,
    budget: float,
    module: str | None,
    given: str | None,
    args: tuple[str, ...],
) -> int:
    """Write the failing operation as a script of its own, for an issue or a forum.

    The folder gets `repro.py` (torch only, a few lines), `README.md` with the numbers and the
    versions, and `tensors.safetensors` if the values are too many for the script. It is made small,
    and has none of the program's source in it; the program's values are replaced where it
    fails without them. It is run in a fresh process: what does not fail there is not kept.

    Exit code 0 with a repro, 3 without one, the script's own if it does no harm.

    \b
    whynan repro -- train.py --lr 0.1        run it first
    whynan repro run.whynan                  from `whynan run --recording run.whynan`
    whynan repro --capsule failed/           from `whynan run --capsule failed/`
    """
    from whynan.repro.making import check_folder

    folder = (out or Path(USUAL)).absolute()
    check_folder(folder)
    if capsule is not None:
        if given is not None or module is not None:
            raise click.UsageError("name a capsule, a recording or a script, not several of them")
        return _from_recording(capsule / "recording.json", folder, keep_values, budget)
    if module is None and given is not None and _is_recording(Path(given)) and not args:
        return _from_recording(Path(given), folder, keep_values, budget)
    return _from_run(program_of(module, given, args), folder, keep_values, budget)


def _is_recording(path: Path) -> bool:
    """A script is text that does not begin like JSON; a capsule is a folder."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder; for a capsule write --capsule {path}")
    try:
        with path.open("rb") as stream:
            return stream.read(64).lstrip().startswith(b'{"schema"')
    except OSError:
        return False


def _from_recording(path: Path, folder: Path, keep_values: bool, budget_s: float) -> int:
    from whynan.recording import load

    return tell(load(path), folder, keep_values=keep_values, budget_s=budget_s)


def _from_run(program: Program, folder: Path, keep_values: bool, budget_s: float) -> int:
    from whynan.run.outputs import RunOptions
    from whynan.run.run import Run

    watched = Run(program, RunOptions(keep_operands=True))
    outcome = watched.go()
    if outcome.code != 3:
        voice.say("no harm was found, so there is nothing to reproduce")
        sys.exit(outcome.code)
    with watched.findings.libraries.in_use():
        return tell(outcome.recording, folder, keep_values=keep_values, budget_s=budget_s)


def tell(
    recording: Recording, folder: Path, *, keep_values: bool = False, budget_s: float = 10.0
) -> int:
    """Make it of the first harm and say what came of it."""
    from whynan.repro.making import make

    if not recording.evidence:
        voice.say("there was no harm in that run, so there is nothing to reproduce")
        return 3
    voice.say("making a repro")
    made = make(recording.evidence[0], folder, keep_values=keep_values, budget_s=budget_s)
    if not made:
        voice.say(f"no repro: {made.why}")
        return 3
    voice.say(f"{made.headline}")
    about = "with values of the run" if made.kept else "without values of the run"
    voice.say(f"{folder / 'repro.py'} shows it: {made.lines} lines, {made.size:,} bytes, {about}")
    return 0

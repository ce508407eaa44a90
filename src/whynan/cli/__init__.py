"""The command line: parse, call the pipeline, return the exit code."""

from __future__ import annotations

import io
import sys

import click

from whynan import voice
from whynan.cli.check import check
from whynan.cli.doctor import doctor
from whynan.cli.explain import explain
from whynan.cli.fix import fix
from whynan.cli.lint import lint
from whynan.cli.profilers import code_of_harm
from whynan.cli.report import report
from whynan.cli.repro import repro
from whynan.cli.run import run
from whynan.cli.settings import name_variables, settings
from whynan.cli.whatif import whatif
from whynan.errors import WhynanError
from whynan.version import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80})
@click.version_option(__version__, prog_name="whynan")
def commands() -> None:
    """Why is there a NaN (or Inf) in my tensors, and what do I change?

    \b
    whynan run train.py             run a script, name the first bad operation
    whynan report run.whynan        draw a saved run again
    whynan fix train.py             and find a change that was run and works
    whynan whatif train.py          the same run with one thing changed at a time
    whynan repro -- train.py        the failing operation as a script of its own
    whynan check model.pt           NaN, Inf and odd values in files
    whynan lint src/                find unstable code before it runs
    whynan explain N012             what a rule means and what to use instead
    whynan doctor                   does it work here? versions, devices, a self-test

    Exit codes: the script's own when it is healthy, 3 when a non-finite value
    did harm, 2 for wrong usage or a torch that could not be watched.
    """


commands.add_command(run)
commands.add_command(fix)
commands.add_command(whatif)
commands.add_command(check)
commands.add_command(explain)
commands.add_command(report)
commands.add_command(repro)
commands.add_command(lint)
commands.add_command(doctor)
name_variables(commands)


def main() -> None:
    """Entry point."""
    with code_of_harm():
        _main()


def _main() -> None:
    try:
        defaults = settings(commands)
        code = commands.main(
            prog_name="whynan",
            standalone_mode=False,
            default_map=defaults,
        )
        _flush()
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        voice.write(shown.getvalue())
        sys.exit(error.exit_code)
    except WhynanError as error:
        voice.say(str(error))
        sys.exit(error.exit_code)
    except BrokenPipeError:
        voice.let_go_of_broken_streams()
        sys.exit(1)
    except OSError as error:
        # Only a stream that is open already fails without a name: a full disk behind `>`.
        if error.filename is not None or error.errno is None:
            raise
        voice.let_go_of_broken_streams()
        voice.say(f"cannot write the output: {error.strerror}")
        sys.exit(2)
    sys.exit(code if isinstance(code, int) else 0)


def _flush() -> None:
    """Here, where a failure can still be told in one line."""
    if sys.stdout is not None and not sys.stdout.closed:
        sys.stdout.flush()

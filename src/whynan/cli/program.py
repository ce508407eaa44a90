"""What commands share: the program that a command line names, and options that name files."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from whynan import voice

if TYPE_CHECKING:
    from whynan.run.program import Program

# What stands after the program's name belongs to the program.
SETTINGS = {"ignore_unknown_options": True, "allow_interspersed_args": False}


def file_option(*names: str, help: str, metavar: str | None = None) -> Callable[..., Any]:
    """An option that names a file or a folder."""
    return click.option(*names, type=click.Path(path_type=Path), help=help, metavar=metavar)


def takes_program(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command `program`, from `[-m MODULE] [SCRIPT] [ARGS]...`."""

    @click.option("-m", "module", metavar="MODULE", help="Run a module, as `python -m` does.")
    @click.argument("script", required=False, shell_complete=_any_file)
    @click.argument("args", nargs=-1, type=click.UNPROCESSED, shell_complete=_any_file)
    @functools.wraps(command)
    def with_program(
        *, module: str | None, script: str | None, args: tuple[str, ...], **options: Any
    ) -> int:
        if module is None:
            _check(script)
        program, own = program_of(module, script, args), _own_options()
        try:
            code = command(program, **options)
        except SystemExit as left:  # the script's own
            _hint(left.code, args, own)
            raise
        _hint(code, args, own)
        return code

    return with_program


def _check(script: str | None) -> None:
    """What is no option of ours would be taken for the script."""
    if script is not None and script.startswith("-") and not os.path.exists(script):
        from whynan.cli.settings import did_you_mean

        name = script.split("=")[0]
        raise click.UsageError(f"no such option: {name}{did_you_mean(name, _own_options())}")


def _own_options() -> list[str]:
    params = click.get_current_context().command.params
    options = [p for p in params if isinstance(p, click.Option) and not p.hidden]
    return [name for option in options for name in option.opts if name.startswith("--")]


def _hint(code: object, args: tuple[str, ...], own: list[str]) -> None:
    """A script that refuses its arguments may have got one of ours."""
    given = [a for a in args if a.split("=")[0] in own]
    if code == 2 and given:
        voice.say(
            f"{given[0]} stands after the script, so the script got it; options of whynan stand before"
        )


def _any_file(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    """A shell completes the names of files itself."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def program_of(module: str | None, script: str | None, args: tuple[str, ...]) -> Program:
    """With -m, the first plain argument is already the module's own."""
    from whynan.run.program import Program

    if module is not None:
        given = (script, *args) if script is not None else args
        return Program(target=module, args=tuple(given), is_module=True)
    if script is None:
        raise click.UsageError("name a script to run, or a module with -m")
    return Program(target=_installed(script) or script, args=args)


def _installed(name: str) -> str | None:
    """`torchrun` and the like: a command beside this Python, unless there is a script of that name."""
    beside = os.path.join(os.path.dirname(sys.executable), name)
    is_command = os.path.basename(name) == name and not os.path.exists(name)
    return beside if is_command and os.path.isfile(beside) else None

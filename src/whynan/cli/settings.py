"""What `[tool.whynan.run]` and its like in pyproject.toml say, under the environment and the options."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import Any

import click

from whynan.errors import UsageError

OWN = frozenset({"lint"})  # which reads its table for each file that it looks at


RANK = "WHYNAN_STARTER"  # in the environment of a rank, whose options were given already


def settings(commands: click.Group) -> dict[str, dict[str, Any]]:
    """Defaults for each command, from the nearest pyproject.toml upwards that has any."""
    try:
        folder = Path.cwd()
    except OSError:  # it was removed
        return {}
    if RANK in os.environ:
        return {}
    for parent in (folder, *folder.parents):
        file = parent / "pyproject.toml"
        if file.is_file() and (table := _table(file)):
            return _checked(table, commands, file)
    return {}


def _table(file: Path) -> dict[str, Any]:
    import tomllib

    try:
        text = file.read_text(encoding="utf-8")
        found = tomllib.loads(text) if "[tool.whynan" in text else {}
    except (OSError, ValueError):
        return {}  # somebody else's to complain of
    table = found.get("tool", {}).get("whynan", {})
    return {n: t for n, t in table.items() if n not in OWN} if isinstance(table, dict) else {}


def _checked(table: dict[str, Any], commands: click.Group, file: Path) -> dict[str, dict[str, Any]]:
    chosen: dict[str, dict[str, Any]] = {}
    for name, values in table.items():
        command = commands.commands.get(name)
        if command is None or not isinstance(values, dict):
            raise UsageError(f"{file}: [tool.whynan.{name}]: {_unknown(name, commands.commands)}")
        known = {o.lstrip("-"): str(p.name) for p in _options(command) for o in p.opts}
        for option in values:
            if option not in known:
                raise UsageError(f"{file}: [tool.whynan.{name}]: {_unknown(option, known)}")
        chosen[name] = {known[option]: value for option, value in values.items()}
    return chosen


def name_variables(commands: click.Group) -> None:
    """`WHYNAN_HTML` is the option of `run`, `WHYNAN_FIX_HTML` that of `fix`."""
    for name, command in commands.commands.items():
        for option in _options(command):
            long = next((o for o in option.opts if o.startswith("--")), None)
            if long is not None:
                parts = ["whynan", *([] if name == "run" else [name]), long.strip("-")]
                option.envvar = "_".join(parts).replace("-", "_").upper()


def _options(command: click.Command) -> list[click.Option]:
    return [p for p in command.params if isinstance(p, click.Option) and not p.hidden]


def _unknown(name: str, known: Any) -> str:
    return f"`{name}` is not known{did_you_mean(name, known)}"


def did_you_mean(name: str, known: Any) -> str:
    """`; did you mean --html?`, or nothing."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""

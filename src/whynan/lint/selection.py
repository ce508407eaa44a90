"""Which patterns are looked for, and where: `[tool.whynan.lint]` and the command's options."""

from __future__ import annotations

import fnmatch
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whynan.errors import UsageError
from whynan.lint.table import Pattern, patterns

KEYS = ("select", "ignore", "per-file-ignores", "exclude")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What pyproject.toml says; `root` is the folder it stands in."""

    root: Path
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    per_file: tuple[tuple[str, frozenset[str]], ...] = ()

    def ignored_in(self, path: str) -> frozenset[str]:
        """Slugs that pyproject.toml switches off for one file."""
        found: frozenset[str] = frozenset()
        for glob, slugs in self.per_file:
            if matches(path, glob, self.root):
                found |= slugs
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The chosen patterns; those `named` by slug also report what has no evidence."""

    patterns: tuple[Pattern, ...]
    named: frozenset[str]


def matches(path: str, glob: str, root: Path) -> bool:
    """Does a path match a glob from pyproject.toml: by name, by folder or relative to it?"""
    relative = os.path.relpath(path, root).replace(os.sep, "/")
    glob = glob.rstrip("/")
    parts = relative.split("/")
    return (
        fnmatch.fnmatch(relative, glob)
        or fnmatch.fnmatch(relative, f"{glob}/*")
        or ("/" not in glob and any(fnmatch.fnmatch(part, glob) for part in parts))
    )


def choose(select: tuple[str, ...], ignore: tuple[str, ...]) -> Selection:
    """Names are slugs, codes, severities, `all` or `default`; nothing selected means `default`."""
    chosen: set[str] = set()
    named: set[str] = set()
    for name in select or ("default",):
        found = _called(name)
        chosen |= found
        if name.lower() == "all" or name.lower().replace("_", "-") in found:
            named |= found
    for name in ignore:
        chosen -= _called(name)
    every = tuple(p for p in patterns() if p.slug in chosen)
    return Selection(patterns=every, named=frozenset(named))


def _called(name: str) -> set[str]:
    wanted = name.strip().lower().replace("_", "-")
    every = patterns()
    if wanted == "all":
        return {p.slug for p in every}
    if wanted == "default":
        return {p.slug for p in every if p.default}
    found = {p.slug for p in every if wanted in (p.slug, p.code.lower())}
    found |= {p.slug for p in every if wanted == p.severity and p.default}
    if not found:
        import difflib

        close = difflib.get_close_matches(wanted, [p.slug for p in every], n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise UsageError(f"no pattern is called {name!r}{hint} (`whynan explain --list` shows all)")
    return found


def read_config(start: Path) -> Config:
    """The nearest pyproject.toml with a `[tool.whynan.lint]` table, from a path upwards."""
    folder = start.resolve()
    for parent in [folder, *folder.parents]:
        file = parent / "pyproject.toml"
        if not file.is_file() or b"whynan" not in file.read_bytes():
            continue
        import tomllib

        try:
            table = tomllib.loads(file.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise UsageError(f"{file}: {error}") from error
        lint = table.get("tool", {}).get("whynan", {}).get("lint")
        if lint is not None:
            return _config(lint, parent, file)
    return Config(root=Path.cwd())


def _config(lint: dict[str, Any], root: Path, file: Path) -> Config:
    unknown = sorted(set(lint) - set(KEYS))
    if unknown:
        raise UsageError(f"{file}: [tool.whynan.lint] has no {unknown[0]!r}; there are: {', '.join(KEYS)}")  # fmt: skip
    per_file = []
    table = lint.get("per-file-ignores", {})
    if not isinstance(table, dict):
        raise UsageError(f"{file}: per-file-ignores must be a table of globs to lists of names")
    for glob, names in table.items():
        slugs: set[str] = set()
        for name in _strings(names, f"per-file-ignores.{glob}", file):
            slugs |= _called(name)
        per_file.append((glob, frozenset(slugs)))
    return Config(
        root=root,
        select=_strings(lint.get("select", []), "select", file),
        ignore=_strings(lint.get("ignore", []), "ignore", file),
        exclude=_strings(lint.get("exclude", []), "exclude", file),
        per_file=tuple(per_file),
    )


def _strings(value: Any, name: str, file: Path) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise UsageError(f"{file}: {name} must be a list of strings")
    return tuple(value)

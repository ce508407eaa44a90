"""Checks and fixes files: one process for a few, several for many."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from whynan.lint.cache import Cache
from whynan.lint.checker import Checker
from whynan.lint.files import decode, write
from whynan.lint.finding import Finding
from whynan.lint.fixer import fix
from whynan.lint.notebook import NotANotebook, Notebook
from whynan.lint.selection import Config, Selection, choose

Find = Callable[[str], list[Finding]]
MANY = 600  # files: below, starting processes costs more than it saves


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What to do with every file; plain values, so that it can cross processes."""

    select: tuple[str, ...]
    ignore: tuple[str, ...]
    config: Config
    mode: str = "check"  # check, fix or diff
    cache: str = ""  # the folder of what was found before; '' for none
    named: frozenset[str] = frozenset()  # files given one by one: if unreadable, it is said


@dataclass(frozen=True, slots=True, kw_only=True)
class FileResult:
    """What came of one file."""

    path: str
    findings: tuple[Finding, ...] = ()
    fixes: int = 0
    diff: str = ""
    unread: str = ""  # why the file could not be read


class Runner:
    """One process's checker, made once."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self._checkers: dict[frozenset[str], Checker] = {}
        self._selection: Selection = choose(task.select, task.ignore)
        self._cache: Cache | None = None
        if task.cache and task.mode == "check":
            chosen = [p.slug for p in self._selection.patterns]
            self._cache = Cache(task.cache, [*chosen, "named", *sorted(self._selection.named)])

    def _checker(self, path: str) -> Checker:
        without = self.task.config.ignored_in(path)
        if without not in self._checkers:
            kept = [p for p in self._selection.patterns if p.slug not in without]
            self._checkers[without] = Checker(kept, self._selection.named)
        return self._checkers[without]

    def file(self, path: str) -> FileResult:
        try:
            with open(path, "rb") as file:
                raw = file.read()
            skim = path not in self.task.named
            if skim and b"torch" not in raw and b"numpy" not in raw:
                return FileResult(path=path)
            place = self._place(path, raw, skim) if self._cache else ""
            if self._cache and (known := self._cache.get(place, path)) is not None:
                return FileResult(path=path, findings=known)
            text, encoding = decode(raw)
        except (OSError, SyntaxError, UnicodeDecodeError) as error:
            return FileResult(path=path, unread=str(error))
        try:
            result, fixed = self.text(path, text)
        except NotANotebook as error:
            return FileResult(path=path, unread=str(error))
        except Exception as error:  # our own mistake must not cost the other files
            return FileResult(path=path, unread=f"internal error: {type(error).__name__}: {error}")
        if self.task.mode == "fix" and fixed != text:
            write(path, fixed, encoding)
        if self._cache and not result.unread:
            self._cache.put(place, result.findings)
        return result

    def _place(self, path: str, raw: bytes, skim: bool) -> str:
        assert self._cache is not None
        without = sorted(self.task.config.ignored_in(path))
        return self._cache.place(path, raw, "skim" if skim else "named", *without)

    def _finder(self, path: str) -> Find:
        checker, skim = self._checker(path), path not in self.task.named
        return lambda text: checker.check(text, path, skim=skim)

    def text(self, path: str, text: str) -> tuple[FileResult, str]:
        """Findings of a text under a name, and the fixed text."""
        find = self._finder(path)
        if path.endswith(".ipynb"):
            return self._notebook(path, text, find)
        if self.task.mode == "check":
            return FileResult(path=path, findings=tuple(find(text))), text
        fixed, made = fix(text, find)
        left = find(fixed if self.task.mode == "fix" else text)
        diff = _diff(path, text, fixed) if self.task.mode == "diff" else ""
        return FileResult(path=path, findings=tuple(left), fixes=made, diff=diff), fixed

    def _notebook(self, path: str, text: str, find: Find) -> tuple[FileResult, str]:
        notebook = Notebook(text)
        made, fixed, diff = 0, text, ""
        if self.task.mode != "check":
            before = notebook.program.split("\n")
            program, made = fix(notebook.program, find, keep_lines=True)
            after = program.split("\n")
            if made and len(after) == len(before):
                # Blanked lines come back as they were.
                lines = [
                    old if shown == new else new
                    for old, shown, new in zip(notebook.lines, before, after, strict=True)
                ]
                diff = _diff(path, "\n".join(notebook.lines), "\n".join(lines))
                fixed = notebook.with_lines(lines)
            else:
                made = 0  # a fix that joins lines would move the cells' borders
        shown_notebook = Notebook(fixed) if self.task.mode == "fix" else notebook
        findings = []
        for found in find(shown_notebook.program):
            cell, line = shown_notebook.place(found.line)
            end = line + found.end_line - found.line
            findings.append(found.moved(path=path, line=line, end_line=end, cell=cell))
        shown = diff if self.task.mode == "diff" else ""
        return FileResult(path=path, findings=tuple(findings), fixes=made, diff=shown), fixed


def _diff(path: str, before: str, after: str) -> str:
    import difflib

    return "".join(
        line if line.endswith("\n") else f"{line}\n"
        for line in difflib.unified_diff(
            before.splitlines(keepends=True), after.splitlines(keepends=True), path, path
        )
    )


def run(paths: list[str], task: Task, jobs: int | None = None) -> Iterable[FileResult]:
    """The result of every file, in order."""
    jobs = jobs or os.cpu_count() or 1
    if jobs == 1 or len(paths) < MANY:
        runner = Runner(task)
        yield from map(runner.file, paths)
        return
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(min(jobs, 16), initializer=_start, initargs=(task,)) as pool:
        yield from pool.map(_work, paths, chunksize=16)


_runner: Runner | None = None  # one per worker process


def rarely_collect() -> None:
    """Trees have no cycles and are freed as they are done with; looking for some costs a tenth of the time."""
    import gc

    gc.freeze()
    gc.set_threshold(100_000, 20, 50)


def _start(task: Task) -> None:
    global _runner
    rarely_collect()
    _runner = Runner(task)


def _work(path: str) -> FileResult:
    assert _runner is not None
    return _runner.file(path)

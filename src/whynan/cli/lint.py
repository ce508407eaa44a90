"""`whynan lint`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from whynan import voice

if TYPE_CHECKING:
    from whynan.lint.finding import Finding
    from whynan.lint.runner import FileResult, Task

FORMATS = ["text", "concise", "json", "sarif", "github", "junit"]


@click.command()
@click.argument("paths", nargs=-1, metavar="PATH...")
@click.option("--fix", is_flag=True, help="Rewrite the files where a fix keeps the mathematics.")
@click.option("--diff", is_flag=True, help="Show what --fix would change, and change nothing.")
@click.option("--select", multiple=True, metavar="NAMES", help="Look only for these: names, codes, error|warning|info, default or all; separate by commas.")  # fmt: skip
@click.option("--ignore", multiple=True, metavar="NAMES", help="Do not look for these.")
@click.option("--format", "style", type=click.Choice(FORMATS), default="text", show_default=True, help="How to print findings.")  # fmt: skip
@click.option("--statistics", is_flag=True, help="Print only how often each pattern was met.")
@click.option("--stdin-filename", metavar="NAME", default="stdin.py", show_default=True, help="What to call standard input, given as PATH `-`.")  # fmt: skip
@click.option("--jobs", "-j", type=click.IntRange(min=1), help="Processes for large trees; all cores unless given.")  # fmt: skip
@click.option("--no-cache", is_flag=True, help="Read every file again; findings are otherwise kept, by content, below ~/.cache/whynan.")  # fmt: skip
@click.option("--lsp", is_flag=True, help="Serve an editor on standard input and output (needs the extra `lsp`).")  # fmt: skip
def lint(
    paths: tuple[str, ...], fix: bool, diff: bool, select: tuple[str, ...], ignore: tuple[str, ...],
    style: str, statistics: bool, stdin_filename: str, jobs: int | None,
    no_cache: bool, lsp: bool,
) -> int:  # fmt: skip
    """Find numerically unstable PyTorch and NumPy code in files, folders and notebooks.

    Nothing is run and torch is not imported. Each finding says which input breaks the code
    and what to write instead; `whynan explain NAME` says more.

    \b
    whynan lint src/ train.py analysis.ipynb
    whynan lint --diff src/            show the fixes
    whynan lint --fix src/             apply them
    whynan lint --select error src/

    A comment `# whynan: allow[log-softmax]` on the line, or alone on the line above it, silences
    one pattern there; so does `# noqa: N012` on the line. `[tool.whynan.lint]` in pyproject.toml takes select, ignore, exclude and
    per-file-ignores.

    Exit code: 0 when nothing was found, 1 for findings, 2 for wrong usage.
    """
    from pathlib import Path

    from whynan.lint import cache
    from whynan.lint.files import find
    from whynan.lint.runner import Task, rarely_collect, run
    from whynan.lint.selection import choose, read_config

    if lsp:
        return _serve(_names(select), _names(ignore))
    if not paths:
        raise click.UsageError("name files or folders, or `-` for standard input")
    if fix and diff:
        raise click.UsageError("--fix changes the files, --diff does not: choose one")
    first = Path(paths[0])
    config = read_config(Path.cwd() if paths[0] == "-" else first if first.is_dir() else first.parent)  # fmt: skip
    task = Task(
        select=_names(select) or config.select,
        ignore=(*config.ignore, *_names(ignore)),
        config=config,
        mode="fix" if fix else "diff" if diff else "check",
        cache="" if no_cache or paths == ("-",) else cache.folder(),
        named=frozenset([stdin_filename] if paths == ("-",) else paths),
    )
    choose(task.select, task.ignore)  # a wrong name is said before any file is read
    if paths == ("-",):
        return _standard_input(task, stdin_filename, style, statistics)
    rarely_collect()
    results = list(run(find(paths, config), task, jobs))
    if task.cache:
        cache.prune(task.cache)
    return show(results, task, style, statistics)


def _serve(select: tuple[str, ...], ignore: tuple[str, ...]) -> int:
    from importlib.util import find_spec

    from whynan.errors import UsageError

    if find_spec("pygls") is None:
        raise UsageError("--lsp needs pygls: pip install 'whynan[lsp]'")
    from whynan.cli.language_server import serve

    serve(select, ignore)
    return 0


def _names(given: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name.strip() for text in given for name in text.split(",") if name.strip())


def _standard_input(task: Task, name: str, style: str, statistics: bool) -> int:
    import sys

    from whynan.lint.notebook import NotANotebook
    from whynan.lint.runner import FileResult, Runner

    text = sys.stdin.buffer.read().decode("utf-8-sig")
    try:
        result, fixed = Runner(task).text(name, text)
    except NotANotebook as error:
        result, fixed = FileResult(path=name, unread=str(error)), text
    if task.mode == "fix":
        sys.stdout.write(fixed)
        return 1 if result.findings else 0
    return show([result], task, style, statistics)


def show(results: list[FileResult], task: Task, style: str, statistics: bool) -> int:
    """Print everything and say how it went."""
    findings: list[Finding] = [f for r in results for f in r.findings]
    unread = {r.path: r.unread for r in results if r.unread}
    if style == "json":
        from whynan.report.lint_formats import to_json

        click.echo(to_json(findings, len(results), unread))
    elif style == "concise":
        for f in findings:
            click.echo(f"{f.path}:{f.line}:{f.column + 1}: {f.code} [{f.slug}] {f.message}")
    elif style in ("github", "sarif", "junit"):
        _for_services(style, findings, results)
    elif statistics:
        from whynan.report.lint_text import statistics as count

        click.echo(count(findings) or "nothing unstable found")
    elif task.mode == "diff":
        for result in results:
            click.echo(result.diff, nl=False)
    else:
        _print(findings, results)
    for path, reason in unread.items():
        voice.say(f"{path} was not read: {reason}")
    changes = task.mode == "diff" and any(r.diff for r in results)
    return 1 if findings or changes or unread else 0


def _for_services(style: str, findings: list[Finding], results: list[FileResult]) -> None:
    from whynan.lint.table import patterns
    from whynan.report import services
    from whynan.report.lint_formats import descriptor, remark_of

    remarks = [remark_of(finding) for finding in findings]
    if style == "github":
        click.echo(services.to_github(remarks), nl=False)
    elif style == "sarif":
        click.echo(services.to_sarif(remarks, [descriptor(p) for p in patterns()]))
    else:
        sound = [r.path for r in results if not r.findings and not r.unread]
        click.echo(services.to_junit("whynan lint", remarks, sound))


def _print(findings: list[Finding], results: list[FileResult]) -> None:
    from whynan.report.lint_text import draw, summary

    for finding in findings:
        click.echo(draw(finding, lambda text, colour: click.style(text, fg=colour, bold=True)))
        click.echo()
    click.echo(summary(findings, len(results), sum(r.fixes for r in results)))

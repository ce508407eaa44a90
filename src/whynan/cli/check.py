"""`whynan check`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from whynan import voice
from whynan.cli.program import file_option

if TYPE_CHECKING:
    from whynan.checking.files import FileReport


@click.command()
@file_option("--against", metavar="OLD", help="Compare with an earlier checkpoint: what went bad, what grew.")  # fmt: skip
@file_option("--json", "json_path", help="Also write the findings as JSON; `-` for standard output instead of text.")  # fmt: skip
@click.option("--format", "style", type=click.Choice(["text", "github", "sarif", "junit"]), default="text", show_default=True, help="How to print what was found.")  # fmt: skip
@click.option("-v", "--verbose", is_flag=True, help="Show every tensor, also the sound ones.")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
def check(
    against: Path | None,
    json_path: Path | None,
    style: str,
    verbose: bool,
    files: tuple[Path, ...],
) -> int:
    """Look for NaN, Inf and odd values in checkpoints, arrays and tables.

    FILES are .pt .pth .bin .ckpt .safetensors .npy .npz .gguf .csv .tsv .parquet, the index of a sharded
    checkpoint, or folders of these. They are read in pieces, whatever their size, and nothing in
    them is ever executed.

    Exit codes: 0 all is well, 3 bad values were found or loading a file would run
    something, 2 a file cannot be read.

    \b
    whynan check model.safetensors
    whynan check --against step_1000.pt step_2000.pt
    whynan check data/
    """
    _need_numpy()
    _need_folder_of(json_path)
    from whynan.checking.compare import compare
    from whynan.checking.file_text import as_json, exit_code, lines_of, summary
    from whynan.checking.files import find_files

    silent = style != "text" or (json_path is not None and str(json_path) == "-")
    paths = find_files(list(files))
    old_paths = find_files([against]) if against is not None else []
    reports: list[FileReport] = []
    with _Bar(paths + old_paths) as bar:
        for path in paths:
            report = bar.check(path)
            reports.append(report)
            if not silent:
                bar.say(lines_of(report, verbose=verbose), err=report.error is not None)
        old = [bar.check(path) for path in old_paths]
        if not silent and (closing := summary(reports)):
            bar.say(closing, err=False)
    comparison = compare(reports, old) if against is not None else None
    for report in old:
        if report.error is not None:
            voice.write(voice.visible(f"{report.path}: not checked: {report.error}\n"))
    if comparison is not None and not silent:
        click.echo(f"against {against} (OLD):")
        lines = comparison.lines() or ["  nothing went bad, nothing grew"]
        click.echo(voice.visible("\n".join(lines)))
    if style != "text":
        _print_for_service(style, reports)
    if json_path is not None:
        _write(as_json(reports, comparison), json_path)
    return exit_code(reports + [r for r in old if r.error is not None])


def _print_for_service(style: str, reports: list[FileReport]) -> None:
    from whynan.checking.file_text import troubles
    from whynan.report import services
    from whynan.report.services import Remark

    remarks = [
        Remark(path=str(report.path), rule=rule, level="error", text=text)
        for report in reports
        for rule, text in troubles(report)
    ]
    if style == "github":
        click.echo(services.to_github(remarks), nl=False)
    elif style == "sarif":
        click.echo(services.to_sarif(remarks, []))
    else:
        sound = [str(report.path) for report in reports if not any(troubles(report))]
        click.echo(services.to_junit("whynan check", remarks, sound))


def _need_numpy() -> None:
    try:
        import numpy  # noqa: F401  # only to see that it is there
    except ImportError:
        from whynan.errors import UsageError

        raise UsageError("checking files needs NumPy: pip install 'whynan[tables]'") from None


def _need_folder_of(json_path: Path | None) -> None:
    """Said before minutes of reading, not after them."""
    if json_path is not None and not json_path.absolute().parent.is_dir():
        from whynan.errors import UsageError

        folder = json_path.absolute().parent
        raise UsageError(f"--json {json_path}: the folder {folder} does not exist")


class _Bar:
    """Progress on a terminal's standard error; nothing elsewhere."""

    def __init__(self, paths: list[Path]) -> None:
        self.total = sum(p.stat().st_size for p in paths if p.exists())
        self.bar: Any = None

    def __enter__(self) -> _Bar:
        if voice.is_on_terminal() and self.total > 1 << 26:
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

            columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn())
            self.bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self.bar.start()
            self.task = self.bar.add_task("", total=self.total)
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def check(self, path: Path) -> FileReport:
        from whynan.checking.files import check_file

        return check_file(path, self.advance)

    def say(self, lines: list[str], *, err: bool) -> None:
        """Take the bar away while lines are written: on a terminal they share a place."""
        if self.bar is not None:
            self.bar.stop()
        text = voice.visible("\n".join(lines))
        voice.write(f"{text}\n") if err else click.echo(text)
        if self.bar is not None:
            self.bar.start()

    def advance(self, size: int) -> None:
        if self.bar is not None:
            self.bar.advance(self.task, size)


def _write(made: dict[str, Any], path: Path) -> None:
    text = json.dumps(made, allow_nan=False, indent=1)
    if str(path) == "-":
        click.echo(text)
        return
    from whynan.errors import UsageError
    from whynan.files import write_atomically

    try:
        write_atomically(path, text + "\n")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error

"""Files and folders to reports: which arrays are bad, which are odd, which cannot be read."""

from __future__ import annotations

import json
import lzma
import math
import re
import statistics
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from whynan.checking.gguf_files import gguf_entries
from whynan.checking.numpy_files import npy_entries, npz_entries
from whynan.checking.safetensors_files import safetensors_entries
from whynan.checking.spans import Entry, Unreadable
from whynan.checking.tables import Column, columns_of
from whynan.checking.tally import Summary
from whynan.checking.torch_files import torch_entries
from whynan.checking.troubles import Thresholds, troubles_of
from whynan.checking.verdicts import Item, Trouble
from whynan.errors import UsageError
from whynan.model import number

# What the standard library's archive reader raises halfway into a damaged file.
DAMAGED = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, UnicodeDecodeError
)  # fmt: skip
PICKLED = (".pt", ".pth", ".bin", ".ckpt")
READERS: dict[str, Callable[[Path], list[Entry]]] = {
    **dict.fromkeys(PICKLED, torch_entries),
    ".safetensors": safetensors_entries,
    ".npy": npy_entries,
    ".npz": npz_entries,
    ".gguf": gguf_entries,
}
TABLES = (".csv", ".tsv", ".parquet")
INDEX = ".index.json"
POINTER = b"version https://git-lfs."  # how the stand-in for a large file begins
FAULTS = ("nan", "inf", "missing", "words")
LARGE_SCALE = 100.0  # weights of a trained network lie well below

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReport:
    """One file: its arrays or columns, or why it cannot be read."""

    path: Path
    items: tuple[Item, ...] = ()
    error: str | None = None
    unread: tuple[tuple[str, str], ...] = ()  # arrays that cannot be looked at, and why
    left_out: tuple[str, ...] = ()  # words and dates
    table: bool = False
    dangers: tuple[str, ...] = ()  # what loading it would do to the machine

    @property
    def bad(self) -> tuple[Item, ...]:
        return tuple(item for item in self.items if item.faults)

    @property
    def values(self) -> int:
        return sum(item.summary.stats.count for item in self.items)


def find_files(paths: list[Path]) -> list[Path]:
    """The files named, and those with a known ending in the folders named."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = [
                p for p in sorted(path.rglob("*")) if known(p) and (p.is_file() or _dangles(p))
            ]
            if not inside:
                raise UsageError(f"{path}: no file to check in this folder; {endings()}")
            found += inside
        elif _dangles(path):
            raise UsageError(f"{path}: {_where_to(path)}")
        elif not path.exists():
            raise UsageError(f"{path}: no such file")
        elif not known(path):
            raise UsageError(f"{path}: unknown kind of file; {endings()}")
        else:
            found += [path, *_shards(path)] if path.name.endswith(INDEX) else [path]
    return list(dict.fromkeys(found))


def _dangles(path: Path) -> bool:
    return path.is_symlink() and not path.exists()


def _where_to(link: Path) -> str:
    return f"a link to {link.readlink()}, which is not there"


def known(path: Path) -> bool:
    return path.suffix in READERS or path.suffix in TABLES or path.name.endswith(INDEX)


def endings() -> str:
    return "known are " + " ".join((*READERS, *TABLES, "*" + INDEX))


def _shards(index: Path) -> list[Path]:
    try:
        return [p for p in map(index.parent.joinpath, sorted(set(_weight_map(index).values()))) if p.is_file()]  # fmt: skip
    except Unreadable:
        return []  # said when the index itself is checked


def _weight_map(index: Path) -> dict[str, str]:
    if index.stat().st_size > 1 << 28:
        raise Unreadable("its index is too large")
    try:
        table = json.loads(index.read_bytes())["weight_map"]
        good = all(isinstance(f, str) and Path(f).name == f for f in table.values())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        good = False
    if not good:
        raise Unreadable("corrupt: no table `weight_map` of file names beside it")
    return dict(table)


def check_file(path: Path, progress: Progress) -> FileReport:
    """Read one file to its end; whatever is wrong with it becomes one line."""
    with warnings.catch_warnings():
        # Readers warn about old or odd headers, which they then read all the same.
        warnings.simplefilter("ignore")
        return _check_file(path, progress)


def _check_file(path: Path, progress: Progress) -> FileReport:
    try:
        if _dangles(path):
            raise Unreadable(_where_to(path))
        if path.stat().st_size == 0:
            raise Unreadable("empty")
        _refuse_pointers(path)
        if path.name.endswith(INDEX):
            return _check_index(path)
        if path.suffix in TABLES:
            return _check_table(path, progress)
        dangers: list[str] = []
        pickled = path.suffix in PICKLED
        entries = torch_entries(path, dangers) if pickled else READERS[path.suffix](path)
        unread = tuple((e.name, e.unread) for e in entries if e.unread is not None)
        items = []
        for entry in entries:
            if entry.unread is None and not entry.text:
                summary = entry.summary(progress)
                items.append(Item(name=entry.name, summary=summary, troubles=_weights(summary)))
        words = tuple(e.name for e in entries if e.text)
        return FileReport(
            path=path, items=tuple(items), unread=unread, left_out=words, dangers=tuple(dangers)
        )
    except Unreadable as error:
        return FileReport(path=path, error=str(error))
    except OSError as error:
        return FileReport(path=path, error=error.strerror or type(error).__name__)
    except DAMAGED as error:
        return FileReport(path=path, error=f"corrupt ({str(error) or type(error).__name__:.120})")
    except MemoryError:
        return FileReport(path=path, error="needs more memory than there is")


def _refuse_pointers(path: Path) -> None:
    """A clone without Git LFS has small texts in the place of its large files."""
    if path.stat().st_size > 1024:
        return
    text = path.read_bytes()
    if text.startswith(POINTER):
        size = re.search(rb"^size (\d{1,18})$", text, re.MULTILINE)
        of = f" of {int(size[1]):,} bytes" if size else ""
        raise Unreadable(
            f"a Git LFS pointer to a file{of}, not the file itself; `git lfs pull` gets it"
        )


def _check_index(path: Path) -> FileReport:
    """A sharded checkpoint: every file that the index names must hold what it promises."""
    shards: dict[str, set[str]] = {}
    for tensor, file in _weight_map(path).items():
        shards.setdefault(file, set()).add(tensor)
    for file, wanted in sorted(shards.items()):
        shard = path.parent / file
        if not shard.is_file():
            raise Unreadable(f"its part {file} is missing, with {len(wanted):,} tensors")
        if shard.suffix not in READERS:
            raise Unreadable(f"its part {file} is of an unknown kind")
        try:
            absent = wanted - {entry.name for entry in READERS[shard.suffix](shard)}
        except Unreadable:
            continue  # reported for the part itself
        if absent:
            raise Unreadable(f"{file} lacks {len(absent):,} tensors, such as {min(absent):.60}")
    return FileReport(path=path)


def _weights(summary: Summary) -> tuple[Trouble, ...]:
    """Remarks about a stored array."""
    found = [t for t in troubles_of(summary, FAULTS, Thresholds()) if t.kind not in ("zero", "subnormal")]  # fmt: skip
    stats = summary.stats
    if stats.dtype in ("float32", "float64", "bfloat16") and summary.reach > 65504:
        found.append(Trouble(kind="float16", text=f"{number(summary.reach)} overflows float16"))
    if stats.dtype == "float64" and summary.reach > 3.39e38:
        found.append(Trouble(kind="bfloat16", text="overflows float32 and bfloat16"))
    elif stats.count > 1 and stats.dtype.startswith(("float", "bfloat")) and (summary.std or 0) > LARGE_SCALE:  # fmt: skip
        found.append(Trouble(kind="scale", text=f"large scale: std {number(summary.std)}"))
    return tuple(found)


def _check_table(path: Path, progress: Progress) -> FileReport:
    columns = columns_of(path, progress)
    items = tuple(_table_items([c for c in columns if not c.text]))
    words = tuple(c.name for c in columns if c.text)
    return FileReport(path=path, items=items, left_out=words, table=True)


def _table_items(columns: list[Column]) -> Iterator[Item]:
    spreads = [s.std for c in columns if (s := c.summary()).std]
    typical = statistics.median(spreads) if spreads else 0.0
    for column in columns:
        summary = column.summary()
        yield Item(name=column.name, summary=summary, troubles=_cells(column, summary, typical))


def _cells(column: Column, summary: Summary, typical: float) -> tuple[Trouble, ...]:
    found = []
    if column.missing:
        found.append(Trouble(kind="missing", text=f"{column.missing:,} missing", fault=True))
    if column.words:
        text = f"{column.words:,} not a number, such as {column.first_word!r:.30}"
        found.append(Trouble(kind="words", text=text, fault=True))
    found += [t for t in troubles_of(summary, FAULTS, Thresholds()) if t.kind not in ("zero", "subnormal", "limit")]  # fmt: skip
    std = summary.std or 0.0
    if std > 1000 * typical > 0 or (summary.reach >= 1e6 and math.isfinite(summary.reach)):
        found.append(Trouble(kind="scale", text=f"unscaled: reaches {number(summary.reach)}"))
    return tuple(found)

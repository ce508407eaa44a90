"""CSV and Parquet, streamed: the numbers of each column."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whynan.checking.spans import Unreadable
from whynan.checking.tally import Summary, Tally

BLOCK_BYTES = 1 << 22
BATCH_ROWS = 1 << 16
NUMBER = r"^\s*[-+]?(\d+\.?\d*([eE][-+]?\d+)?|\.\d+([eE][-+]?\d+)?|[iI]nf(inity)?)\s*$"

FIRST_LINE_BYTES = 1 << 22
MOST_COLUMNS = 20_000  # each costs half a millisecond, however short
MOSTLY = 0.9  # of the cells: then the rest are errors, not the column's nature
PARTS = ["number", "word"]


@dataclass(slots=True)
class Column:
    """One numeric column while it is read."""

    name: str
    dtype: str
    tally: Tally = field(default_factory=Tally)
    missing: int = 0
    words: int = 0  # cells that are text in a column of numbers
    first_word: str = ""
    text: bool = False  # words or dates throughout: not looked at

    def summary(self) -> Summary:
        return self.tally.summary(shape=(self.tally.seen,), dtype=self.dtype)


def arrow() -> Any:
    """pyarrow, or a kind word about it."""
    try:
        import pyarrow
    except ImportError:
        raise Unreadable("tables need pyarrow: pip install 'whynan[tables]'") from None
    return pyarrow


def columns_of(path: Path, progress: Callable[[int], None]) -> list[Column]:
    """Every column; of words and dates only the name."""
    pa = arrow()
    try:
        if path.suffix == ".parquet":
            return _gathered(_parquet(path, progress))
        numeric, mixed = _numeric_columns(path)
        if not mixed:
            try:
                return _gathered(_csv(path, progress, numeric, strict=True))
            except pa.ArrowInvalid as error:
                if "conversion error" not in str(error):
                    raise
        return _gathered(_csv(path, progress, numeric, strict=False))
    except (pa.ArrowException, OSError, ValueError, MemoryError, UnicodeError) as error:
        raise Unreadable(f"corrupt or truncated table ({_first_line(error)})") from None


def _gathered(batches: Iterator[Any]) -> list[Column]:
    found: dict[int, Column] = {}  # by position: names may repeat
    for batch in batches:
        for i, values in enumerate(batch.columns):
            _add(found, i, batch.schema.names[i], values)
    for column in found.values():  # one that was empty in the first block may turn out as text
        column.text = column.text or 0 < column.words == column.tally.seen - column.missing
    return list(found.values())


def _count(columns: int) -> None:
    if columns > MOST_COLUMNS:
        raise Unreadable(f"has {columns:,} columns; at most {MOST_COLUMNS:,} are read")


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:120]


def _parquet(path: Path, progress: Callable[[int], None]) -> Iterator[Any]:
    import pyarrow.parquet as pq

    # The limits keep a damaged footer from asking for gigabytes.
    with pq.ParquetFile(
        path, memory_map=True, pre_buffer=False,
        thrift_string_size_limit=1 << 26, thrift_container_size_limit=1 << 22,
    ) as file:  # fmt: skip
        _count(len(file.schema_arrow))
        rows, size = max(file.metadata.num_rows, 1), path.stat().st_size
        for batch in file.iter_batches(batch_size=BATCH_ROWS, use_threads=False):
            progress(size * batch.num_rows // rows)
            yield batch


def _csv(
    path: Path, progress: Callable[[int], None], numeric: dict[str, bool], *, strict: bool
) -> Iterator[Any]:
    """Types are guessed from the first block. When a cell does not fit, columns of numbers are
    read as text and parsed here, so that what does not fit is counted.
    """
    pa = arrow()
    names = {name: pa.string() for name, fits in numeric.items() if not (fits and strict)}
    numbers = {name: pa.float64() for name, fits in numeric.items() if fits and strict}
    with _open(path, names | numbers) as reader:
        for batch in reader:
            progress(batch.nbytes)
            yield batch if strict else _parsed(batch, numeric)


def _numeric_columns(path: Path) -> tuple[dict[str, bool], bool]:
    """Whether each column holds numbers, by its first block, and whether some hold text as well."""
    pa = arrow()
    _count_ahead(path)
    with _open(path, {}) as reader:
        _count(len(reader.schema))
        first = next(iter(reader), None)
        types = {f.name: f.type for f in reader.schema}
    # A column without a single value is one of numbers that are missing, unless a comma at the
    # end of each line made it.
    numeric = {
        n: pa.types.is_integer(t) or pa.types.is_floating(t) or (pa.types.is_null(t) and bool(n))
        for n, t in types.items()
    }
    # By position: a table may have several columns of one name.
    parts = zip(first.schema, first.columns, strict=True) if first is not None else ()
    mixed = [field.name for field, values in parts if _mostly_numbers(values, field.type)]
    return numeric | dict.fromkeys(mixed, True), bool(mixed)


def _count_ahead(path: Path) -> None:
    """By the first line: pyarrow takes seconds to open a file of 100,000 columns."""
    line = _head_of(path)
    if line.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise Unreadable("is UTF-16: save it as UTF-8 to check it")
    if b'"' not in line:  # a quoted name may hold commas, which pyarrow knows
        _count(line.count(_separator(path).encode()) + 1)


def _head_of(path: Path) -> bytes:
    with open(path, "rb") as stream:
        return stream.readline(FIRST_LINE_BYTES)


def _separator(path: Path) -> str:
    """A comma, unless the first line has none and is parted by something else."""
    if path.suffix == ".tsv":
        return "\t"
    line = _head_of(path)
    return "," if b"," in line else max(",;\t|", key=lambda c: line.count(c.encode()))


def _starts_with_numbers(path: Path, separator: str) -> bool:
    """Whether the first line is a row already, not the columns' names."""
    cells = _head_of(path).decode("utf-8-sig", "replace").strip("\r\n").split(separator)
    return all(re.match(NUMBER, cell) for cell in cells)


def _mostly_numbers(values: Any, kind: Any) -> bool:
    import pyarrow.compute as pc

    if not arrow().types.is_string(kind):
        return False
    share = pc.mean(pc.match_substring_regex(values, NUMBER)).as_py()
    return share is not None and share >= MOSTLY


def _open(path: Path, types: dict[str, Any]) -> Any:
    import pyarrow.csv as csv

    separator = _separator(path)
    return csv.open_csv(
        path,
        read_options=csv.ReadOptions(
            block_size=BLOCK_BYTES,
            use_threads=False,
            autogenerate_column_names=_starts_with_numbers(path, separator),
        ),
        parse_options=csv.ParseOptions(delimiter=separator),
        convert_options=csv.ConvertOptions(column_types=types, strings_can_be_null=True),
    )


def _parsed(batch: Any, numeric: dict[str, bool]) -> Any:
    """Text that is a number becomes one; what is not is kept beside it."""
    import pyarrow.compute as pc

    pa = arrow()
    columns = []
    for name, values in zip(batch.schema.names, batch.columns, strict=True):
        if numeric.get(name):
            fits = pc.fill_null(pc.match_substring_regex(values, NUMBER), True)
            text = pc.utf8_trim_whitespace(pc.if_else(fits, values, None))
            parts = [pc.cast(text, pa.float64()), pc.if_else(fits, None, values)]
            values = pa.StructArray.from_arrays(parts, PARTS)
        columns.append(values)
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _add(found: dict[int, Column], position: int, name: str, values: Any) -> None:
    import numpy as np

    from whynan.checking.numpy_blocks import tally_array

    pa = arrow()
    words = None
    if pa.types.is_struct(values.type) and [f.name for f in values.type] == PARTS:
        words, values = values.field("word"), values.field("number")
    while pa.types.is_list(values.type) or pa.types.is_large_list(values.type) or pa.types.is_fixed_size_list(values.type):  # fmt: skip
        values = values.flatten()
    if pa.types.is_null(values.type) or pa.types.is_decimal(values.type):
        values = values.cast(pa.float64())
    if not (pa.types.is_floating(values.type) or pa.types.is_integer(values.type)):
        if name and not pa.types.is_boolean(values.type):
            found.setdefault(position, Column(name, str(values.type), text=True))
        return
    column = found.setdefault(position, Column(name, np.dtype(values.type.to_pandas_dtype()).name))
    if words is not None and words.null_count < len(words):
        column.words += len(words) - words.null_count
        column.first_word = column.first_word or str(words.drop_null()[0])
        column.missing -= len(words) - words.null_count
    column.missing += values.null_count
    block = tally_array(values.drop_null().to_numpy(zero_copy_only=False))
    if values.null_count:  # positions are those of the rows, missing ones counted
        rows = np.nonzero(values.is_valid().to_numpy(zero_copy_only=False))[0]
        block.seen = len(values)
        block.first_bad = None if block.first_bad is None else int(rows[block.first_bad])
        block.far = None if block.far is None else int(rows[block.far])
    column.tally.merge(block)

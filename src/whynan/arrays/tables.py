"""Tables of pandas: what is written of them, and whether a NaN in one is NumPy's or a gap.

pandas writes NaN for a value that is missing, which is no harm. A NaN counts only where a column
or the whole holds as many as NumPy made. pandas is never imported here: a table that is given proves it is there.
"""

from __future__ import annotations

import ast
import functools
import math
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from whynan.arrays.numpy_errors import Event, Place
from whynan.model import Operand
from whynan.source.trees import function_of, statement_at

WRITERS = (
    "to_csv", "to_excel", "to_feather", "to_hdf", "to_html", "to_json", "to_parquet", "to_pickle",
    "to_sql", "to_stata", "to_xml",
)  # fmt: skip
PATHS = ("path", "path_or_buf", "path_or_buffer", "buf", "excel_writer", "name")


def is_table(value: object) -> bool:
    return type(value).__module__.split(".")[0] == "pandas" and hasattr(value, "isna")


def holds_what_was_made(table: Any, event: Event) -> bool:
    """Whether a table has the NaN of an event, not only gaps of its own."""
    ops = (event.evidence.origin, *event.followers)
    made = [op.outputs[0] for op in ops if op.out is not None and op.out.nan]
    columns = dict(table.items()) if hasattr(table, "columns") else {None: table}
    written = {c for place in event.places for c in _columns_written(place)} & columns.keys()
    if written:  # that column may have had gaps as well
        counts = [int(columns[c].isna().sum()) for c in written]
        return any(n >= out.stats.nan for n in counts for out in made if out.stats)
    return any(_same(part, out) for part in (table, *columns.values()) for out in made)


def _same(part: Any, out: Operand) -> bool:
    """As many NaN as were made, in something of that shape, beginning at the same place."""
    gaps = sys.modules["numpy"].asarray(part.isna())
    if out.stats is None or gaps.shape != out.stats.shape or gaps.sum() != out.stats.nan:
        return False
    begins_with_nan = out.first is not None and out.value is not None and math.isnan(out.value)
    return bool(gaps[out.first]) if begins_with_nan else True


def watch_writers(see: Callable[[Any, FrameType], None]) -> list[Callable[[], None]]:
    """`see(table, frame)` before a table is written to a file; how to undo that."""
    pandas: Any = sys.modules.get("pandas")
    undo: list[Callable[[], None]] = []
    for kind in (pandas.DataFrame, pandas.Series) if hasattr(pandas, "Series") else ():
        for name in WRITERS:
            if hasattr(kind, name):
                undo.append(_watch(kind, name, see))
    return undo


def _watch(kind: Any, name: str, see: Callable[[Any, FrameType], None]) -> Callable[[], None]:
    original, own = getattr(kind, name), name in vars(kind)

    @functools.wraps(original)
    def writer(table: Any, *args: Any, **kwargs: Any) -> Any:
        paths = (*args[:1], *(kwargs[k] for k in PATHS if k in kwargs))
        if any(path is not None for path in paths):  # else it returns a text
            see(table, sys._getframe(1))
        return original(table, *args, **kwargs)

    setattr(kind, name, writer)
    return lambda: setattr(kind, name, original) if own else delattr(kind, name)


def _columns_written(place: Place) -> set[Any]:
    """`rate` for the statement `df["rate"] = ...` or `df.loc[rows, "rate"] = ...`."""
    body = function_of(place.code)
    statement = statement_at(body, place.line, place.column) if body is not None else None
    if not isinstance(statement, (ast.Assign, ast.AugAssign)):
        return set()
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    keys = [t.slice for t in targets if isinstance(t, ast.Subscript)]
    parts = [p for k in keys for p in (k.elts if isinstance(k, ast.Tuple) else [k])]
    return {p.value for p in parts if isinstance(p, ast.Constant)}

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

from whynan.arrays.evidence import evidence_of, unseen_of
from whynan.arrays.numpy_errors import Event, Place
from whynan.arrays.place import unseen_by_warnings
from whynan.model import Evidence, Operand, Site
from whynan.source.trees import function_of, statement_at

WRITERS = (
    "to_csv", "to_excel", "to_feather", "to_hdf", "to_html", "to_json", "to_parquet", "to_pickle",
    "to_sql", "to_stata", "to_xml",
)  # fmt: skip
DIVISIONS = ("__truediv__", "__rtruediv__", "div", "divide", "truediv", "rdiv", "rtruediv")
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


def watch_division(see: Callable[[list[Any], Any, FrameType], None]) -> list[Callable[[], None]]:
    """`see([dividend, divisor], quotient, frame)` of a division that made an infinity; how to undo that.

    pandas divides in silence. What is 0 / 0 is a gap there, and gaps are no harm.
    """
    pandas: Any = sys.modules.get("pandas")
    undo: list[Callable[[], None]] = []
    for kind in (pandas.DataFrame, pandas.Series) if hasattr(pandas, "Series") else ():
        for name in DIVISIONS:
            if hasattr(kind, name):
                undo.append(_watch_division(kind, name, see))
    return undo


def _watch_division(
    kind: Any, name: str, see: Callable[[list[Any], Any, FrameType], None]
) -> Callable[[], None]:
    original, own = getattr(kind, name), name in vars(kind)
    swapped = name.strip("_").startswith("r")

    @functools.wraps(original)
    @unseen_by_warnings
    def division(table: Any, other: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(table, other, *args, **kwargs)
        if is_table(result):
            see([other, table] if swapped else [table, other], result, sys._getframe(1))
        return result

    setattr(kind, name, division)
    return lambda: setattr(kind, name, original) if own else delattr(kind, name)


def divided(operands: list[Any], quotient: Any, site: Site) -> Evidence | None:
    """The evidence of an infinity in the quotient."""
    np: Any = sys.modules["numpy"]
    parts = [quotient, *operands]
    values = [x.to_numpy() if is_table(x) else x for x in parts]
    if not all(getattr(v, "dtype", np.dtype(float)).kind in "fiub" for v in values):
        return None
    out = np.where(np.isnan(values[0]), 0.0, values[0])
    if np.isfinite(out).all() or any(np.isinf(v).any() for v in values[1:]):
        return None
    shapes = {np.shape(v) for v in values if np.shape(v)}
    if len(shapes) > 1:  # rows were matched by their names
        return unseen_of(out, [], site, "scipy.unseen", "which rows were divided")
    return evidence_of("truediv", values[1:], out, site, "numpy", {})


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

"""What the framework changed without a word in the formula: an autocast that made it half precision."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise

from whynan.diagnosis.naming import short_call
from whynan.diagnosis.words import dtype_max
from whynan.model import Cause, Fix, OpRecord, Site, number

HALF = frozenset({"float16", "bfloat16"})
WIDE = "float32"
CASTS = frozenset({"half", "bfloat16", "to", "type", "type_as"})
AUTOCAST_OFF = Fix(
    kind="autocast_off",
    title="leave this part out of the autocast: `with torch.autocast(..., enabled=False):` around it, on float32 operands",
)


def autocast_of(op: OpRecord) -> Cause | None:
    """Named if the operation would be finite without it: float32 holds what half precision does not."""
    limit = dtype_max(WIDE)
    if op.dtype not in HALF or op.exact is None or limit is None or not abs(op.exact) < limit:
        return None
    found = next(iter(_cast_with(op)), None)
    if found is None:
        return None
    caused = short_call(found)
    there = "" if found is op else f"{_place(found, op)}: "
    text = f"{there}autocast put `{caused}` into {op.dtype}, whose operands were {WIDE}; {WIDE} holds {number(op.exact)}"
    return Cause(code="autocast", evidence=text)


def _cast_with(op: OpRecord) -> Iterator[OpRecord]:
    """Operations whose operand was cast where they stand themselves: nobody wrote that cast."""
    for operand in op.inputs:
        chain = (op, *operand.upstream)
        for made, cast in pairwise(chain):
            if cast.name == "_to_copy" and cast.dtype in HALF and _is_unwritten(cast, made):
                yield made


def _is_unwritten(cast: OpRecord, made: OpRecord) -> bool:
    wide = any(o.stats is not None and o.stats.dtype == WIDE for o in cast.inputs)
    written = short_call(made) in CASTS or made.name == "_to_copy"
    return wide and not written and _at(cast.site) is not None and _at(cast.site) == _at(made.site)


def _at(site: Site | None) -> tuple[str | int | None, ...] | None:
    """The whole expression: `x.half() * 2` begins where `x.half()` does."""
    if site is None or site.column is None:
        return None
    return site.file, site.line, site.column, site.end_line, site.end_column


def _place(made: OpRecord, op: OpRecord) -> str:
    if made.site is None or op.site is None or made.site.file == op.site.file:
        return f"line {made.site.line if made.site is not None else '?'}"
    return f"{os.path.basename(made.site.file)}:{made.site.line}"

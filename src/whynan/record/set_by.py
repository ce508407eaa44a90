"""Which setting of the user's an origin goes back to: an eps of 0, a tiny temperature."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator

from whynan.model import Evidence, OpRecord, Setting
from whynan.ops.table import row
from whynan.seam.sites import USER, kind_of_file
from whynan.source.settings import setting_behind

NEAR = 3  # operations before the origin
SMALL = 1e-3
LARGE = 1e4
SCALING = ("div", "mul")
GUARDS = ("other", "eps", "min", "value", "alpha")


def setting_of(evidence: Evidence) -> Setting | None:
    """The one number that explains the origin and that stands in the user's own text."""
    if evidence.origin_kind not in ("operation", "number") or evidence.origin.phase in (
        "optimizer",
        "data",
    ):
        return None
    files = [*_own_files()]
    folders = list(dict.fromkeys([os.getcwd(), *(os.path.dirname(f) for f in files)]))
    for op, name, value in _numbers(evidence.origin):
        if op.site is not None:
            found = setting_behind(op.site, [name], value, files, folders)
            if found is not None:
                return Setting(
                    name=found.name, value=value, file=found.file, line=found.line, text=found.text
                )
    return None


def _numbers(origin: OpRecord) -> Iterator[tuple[OpRecord, str, float]]:
    """Those that can be to blame: of the origin, and what was to keep its operands away from 0."""
    for name, given in origin.scalars.items():
        if isinstance(given, float | int) and not isinstance(given, bool) and _is_odd(name, given):
            yield origin, name, float(given)
    if origin.derived and origin.name == "pow":  # x ** n, whose slope is n * x ** (n - 1)
        exponent = origin.scalar("exponent")
        if exponent is not None and -1 < exponent < 0:
            yield origin, "exponent", exponent + 1
    told = origin.operand(row(origin.name).of)  # a divisor before what it divides
    others = [operand for operand in origin.inputs if operand is not told]
    for operand in (*([told] if told is not None else []), *others):
        for op in operand.upstream[:NEAR]:
            if "compares" in row(op.name).does:  # `ids == PAD` marks entries, and scales nothing
                continue
            for name, given in op.scalars.items():
                if not isinstance(given, float | int) or isinstance(given, bool):
                    continue
                scales = op.name in SCALING and _is_odd(name, given)
                if scales or (given == 0 and name in GUARDS and op.name not in ("pow", "mul")):
                    yield op, name, float(given)


def _is_odd(name: str, value: float) -> bool:
    if value == 0:
        return name in GUARDS
    return not SMALL <= abs(value) <= LARGE and not math.isnan(value)


def _own_files() -> Iterator[str]:
    seen = set()
    for module in [*sys.modules.values()]:
        file = getattr(module, "__dict__", {}).get("__file__")
        if isinstance(file, str) and file not in seen and file.endswith(".py"):
            seen.add(file)
            if kind_of_file(file) == USER:
                yield file

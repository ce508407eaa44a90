"""One operation on arrays as evidence that the rules can read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from whynan.checking.distributions import to_numpy
from whynan.checking.values import summarise
from whynan.model import Evidence, Operand, OpRecord, Scalar, Site
from whynan.ops.op import Op
from whynan.ops.table import row


def evidence_of(
    function: str, inputs: list[Any], output: Any, site: Site | None, library: str,
    made: Mapping[int, str], *, infinite: bool = False, lost_first: bool = False,
) -> Evidence | None:  # fmt: skip
    """What the operation did, if it made a non-finite value out of finite ones.

    With `infinite`, also a NaN out of infinities; `lost_first`: the first input is not known.
    """
    import numpy as np

    known = row(function)
    name = known.name if known.name in known.aten else (*known.aten, function)[0]
    out = to_numpy(output)
    arrays = {i: to_numpy(x) for i, x in enumerate(inputs) if hasattr(x, "dtype")}
    numbers = {i: x for i, x in enumerate(inputs) if i not in arrays}
    fresh = np.isnan(out) if infinite else ~np.isfinite(out)
    if not infinite and any(
        isinstance(n, (int, float)) and not math.isfinite(n) for n in numbers.values()
    ):
        return None  # an infinity that the program wrote
    elementwise = known.reads == "elementwise"
    for array in arrays.values():
        usable = ~np.isnan(array) if infinite else np.isfinite(array)
        if elementwise:
            fresh = fresh & np.broadcast_to(usable, out.shape)
        elif not usable.all():
            return None
    if not fresh.any():
        return None
    nan = fresh & np.isnan(out)
    # In a sum that overflowed, NaN are infinities of both signs.
    witness = fresh & ~nan if not elementwise and (fresh & ~nan).any() else nan
    position = int((witness if witness.any() else fresh).reshape(-1).argmax())
    index = tuple(int(i) for i in np.unravel_index(position, out.shape))
    value = float(out[index])
    roles = _roles(known, len(inputs))
    operands = tuple(
        _operand(inputs[i], array, roles[i], index if elementwise else None, out.shape, made.get(i))
        for i, array in arrays.items()
    )
    if lost_first:
        operands = operands[1:]
    scalars: dict[str, Scalar] = {
        roles[i]: n for i, n in numbers.items() if isinstance(n, (int, float))
    }
    result = Operand(
        role="out", stats=summarise(output).stats, index=index, first=index,
        dtype=summarise(output).stats.dtype, value=value,
    )  # fmt: skip
    origin = OpRecord(
        index=0, op=f"array.{name}.{library}", phase="data", step=0, site=site, inputs=operands,
        outputs=(result,), scalars=scalars,
        exact=_exact(function, [_at(arrays.get(i), numbers.get(i), index, out.shape) for i in range(len(inputs))]) if elementwise and not lost_first else None,
    )  # fmt: skip
    return Evidence(
        sink="output", subject="result", step=0, origin=origin, origin_kind="operation",
        sink_site=site, sink_value=value,
    )  # fmt: skip


def unseen_of(result: Any, inputs: list[Any], site: Site, op: str, why: str) -> Evidence | None:
    """A function that cannot be seen into made a non-finite value."""
    import numpy as np

    values, stats = to_numpy(result), summarise(result).stats
    wrong = ~np.isfinite(values)
    if not wrong.any():
        return None
    index = tuple(int(i) for i in np.unravel_index(int(wrong.reshape(-1).argmax()), wrong.shape))
    value = float(values[index])
    out = Operand(role="out", stats=stats, index=index, first=index, dtype=stats.dtype, value=value)
    given = tuple(
        Operand(role=f"argument {i}", stats=summarise(x).stats) for i, x in enumerate(inputs)
    )
    origin = OpRecord(
        index=0, op=op, phase="data", step=0, site=site, inputs=given, outputs=(out,)
    )  # fmt: skip
    return Evidence(
        sink="output", subject="result", step=0, origin=origin, origin_kind="operation",
        sink_site=site, sink_value=value, incomplete=why,
    )  # fmt: skip


def _roles(known: Op, n: int) -> list[str]:
    second = {"pow": "exponent", "matmul": "mat2"}.get(known.name, "other")
    return ["self", second, *(f"argument {i}" for i in range(2, n))]


def _at(array: Any, number: Any, index: tuple[int, ...], shape: tuple[int, ...]) -> Any:
    import numpy as np

    return number if array is None else float(np.broadcast_to(array, shape)[index])


def _operand(
    x: Any, array: Any, role: str, index: tuple[int, ...] | None, shape: tuple[int, ...],
    source: str | None,
) -> Operand:  # fmt: skip
    stats = summarise(x).stats
    value = _at(array, None, index, shape) if index is not None else None
    # Scalars have no index; broadcast ones have another than the output's.
    own = index if index is not None and array.shape == shape else None
    return Operand(role=role, stats=stats, index=own, dtype=stats.dtype, value=value, source=source)


def _exact(function: str, values: list[Any]) -> float | None:
    """The same operation on the witness in float64."""
    import numpy as np

    known = row(function).numpy
    compute = getattr(np, known[0] if known else function, None)
    if function == "astype":
        return float(values[0])
    try:
        with np.errstate(all="ignore"):
            return float(compute(*[np.float64(v) for v in values])) if compute else None
    except (TypeError, ValueError):
        return None

"""Phrases that several rules share."""

from __future__ import annotations

from whynan.model import Evidence, Operand, OpRecord, Sample, TensorStats, number
from whynan.ops.table import row

# What an argument is, where torch's own name for it says little.
PLACES = {
    "mat1": "the first matrix", "mat2": "the second matrix", "batch1": "the first matrix",
    "batch2": "the second matrix", "mat": "the matrix", "vec": "the vector",
    "other": "the second operand", "tensor1": "the first factor", "tensor2": "the second factor",
    "grad_output": "the incoming gradient", "grad": "the incoming gradient",
    "grads": "its gradient", "exp_avgs": "exp_avg", "exp_avg_sqs": "exp_avg_sq",
}  # fmt: skip
NONFINITE = {"nan": "NaN", "inf": "inf", "-inf": "-inf"}


def plural(n: int, one: str, many: str | None = None) -> str:
    """`1 value`, `3 values`."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def at(index: tuple[int, ...] | None) -> str:
    """` at [7, 2]`, or nothing for a scalar."""
    return f" at [{', '.join(map(str, index))}]" if index else ""


def whose(sample: Sample | None) -> str:
    """`, item 137 of the dataset`: where one sample of the batch is to blame."""
    if sample is None or sample.inferred or sample.bad >= max(sample.size, 2):
        return ""
    first = ", the first" if sample.bad > 1 else ""
    if sample.dataset_index is None:
        return f"{first}, sample {sample.index} of the {sample.size} in the batch"
    listed = sample.table is None or sample.table.startswith("`")
    where = sample.table or "the dataset"
    return f"{first}, {'item' if listed else 'row'} {sample.dataset_index} of {where}"


def bad_values(stats: TensorStats | None) -> str:
    """`3 NaN and 2 inf of 5,120 values`."""
    if stats is None:
        return "a non-finite value"
    counts = [(stats.nan, "NaN"), (stats.posinf, "inf"), (stats.neginf, "-inf")]
    words = [f"{n:,} {word}" for n, word in counts if n]
    if not words:
        return "a non-finite value"
    joined = " and ".join(words)
    return joined if stats.count == 1 else f"{joined} of {stats.count:,} values"


def origin_label(op: OpRecord) -> str:
    """What stands under the carets."""
    index = op.outputs[0].first or op.outputs[0].index if op.outputs else None
    if op.out is None or not op.out.nonfinite:  # of the rest nothing is known: it was overwritten
        return f"{number(op.value)}{at(index)}"
    bad = are_bad(op.out)
    if not index or op.out.nonfinite == op.out.count:
        return bad
    return f"{bad},{at(index)}" if op.out.nonfinite == 1 else f"{bad}, the first{at(index)}"


def are_bad(stats: TensorStats) -> str:
    """`36 of 1,024 values are inf`, `all 6 values are NaN`, `NaN`."""
    kinds = {"NaN": stats.nan, "inf": stats.posinf, "-inf": stats.neginf}
    found = [(n, word) for word, n in kinds.items() if n]
    if len(found) != 1:
        return bad_values(stats)
    ((n, word),) = found
    if n == stats.count:
        return word if n == 1 else f"all {n:,} values are {word}"
    return f"{n:,} of {stats.count:,} values {'is' if n == 1 else 'are'} {word}"


def subject(evidence: Evidence) -> str:
    """`loss is NaN`, `gradient of fc.weight is inf`, `every gradient became 0`."""
    if evidence.effect:
        return evidence.effect
    if evidence.sink == "exception":
        return f"{evidence.subject} was raised"
    value = "not finite" if evidence.sink_value is None else number(evidence.sink_value)
    comma = "," if ", which " in evidence.subject else ""
    return f"{evidence.subject}{comma} is {value}"


def sink_word(evidence: Evidence) -> str:
    """What a chain ends with: `loss`, or `grad` where another tensor is differentiated."""
    return "grad" if evidence.sink == "loss" and evidence.subject != "loss" else evidence.sink


def called(operand: Operand | None, fallback: str = "its input") -> str:
    """An operand by the user's name for it."""
    return f"`{operand.name}`" if operand is not None and operand.name else fallback


def of_values(n: int, count: int, where: str) -> str:
    """`1 of the 5 values there is`, `all 64 values there are`, to be gone on with.

    >>> of_values(1, 5, " there"), of_values(64, 64, " there"), of_values(1, 1, " there")
    ('1 of the 5 values there is', 'all 64 values there are', 'the value there is')
    """
    if n == count:
        return f"the value{where} is" if n == 1 else f"all {n:,} values{where} are"
    return f"{n:,} of the {count:,} values{where} {'is' if n == 1 else 'are'}"


def some_of(operand: Operand, n: int, what: str) -> str:
    """`3 of the 5,120 values in `p` are exactly 0`."""
    count = operand.stats.count if operand.stats is not None else n
    return f"{of_values(n, count, f' in {called(operand)}')} {what}"


def spoken(op: OpRecord, operand: Operand) -> str:
    """An operand by the user's name for it, as a parameter, or by its place in the operation."""
    if operand.name:
        return f"`{operand.name}`"
    if (operand.source or "").startswith(("parameter", "buffer")):
        return operand.source or ""
    role = operand.role.split("[")[0]  # of a list, `self[3]`
    if op.name == "addcdiv" and role in ("tensor1", "tensor2"):
        return "the dividend" if role == "tensor1" else "the divisor"
    if role in ("self", "input"):
        return _first_place(op)
    return PLACES.get(role) or f"the {role.replace('_', ' ')}"


def _first_place(op: OpRecord) -> str:
    product = row(op.name).name
    if product == "matmul":
        return "the matrix" if op.name == "mv" else "the first matrix"
    if product == "addmm":
        return "what is added to the product"
    both = any(o.role in ("other", "tensor") for o in op.inputs)
    return "the first operand" if both else "the input"


def dtype_max(dtype: str) -> float | None:
    """The largest finite number of a type, by name."""
    return {
        "float16": 65504.0,
        "bfloat16": 3.3895313892515355e38,
        "float32": 3.4028234663852886e38,
        "float64": 1.7976931348623157e308,
        "complex64": 3.4028234663852886e38,
        "complex128": 1.7976931348623157e308,
        "float8_e4m3fn": 448.0,
        "float8_e5m2": 57344.0,
    }.get(dtype)


def dtype_tiny(dtype: str) -> float | None:
    """The smallest number of a type that still has all its digits, by name."""
    return {
        "float16": 2.0**-14,
        "bfloat16": 2.0**-126,
        "float32": 2.0**-126,
        "float64": 2.0**-1022,
        "complex64": 2.0**-126,
        "complex128": 2.0**-1022,
    }.get(dtype)

"""What an expert says where no change of a line mends it: the reason, with the numbers."""

from __future__ import annotations

import math
import os

import libcst as cst

from whynan.model import number
from whynan.ops.table import row, that
from whynan.repair.calls import binary, fn
from whynan.repair.case import Case
from whynan.repair.rewrites.amounts import is_count
from whynan.repair.rewrites.kernels import underflowed_kernel
from whynan.repair.rewrites.masks import MASKED, draws
from whynan.repair.rewrites.matrices import is_indefinite
from whynan.repair.rewrites.ratios import impossible
from whynan.source.quotes import short_path

PRODUCTS = that("multiplies")
PARTS = that("picks") | that("splits") | {"slice"}
FILLS = that("fills")
SUMS_IN_LOG_SPACE = ("logsumexp", "logcumsumexp", "logaddexp")
LONG = 3  # factors
LARGEST = {"float16": 11.1, "float64": 709.8}  # exponents


def said(case: Case) -> str | None:
    """One or two sentences, or None."""
    for attempt in ATTEMPTS:
        text = attempt(case)
        if text is not None:
            return text
    return None


def _nothing_to_draw(case: Case) -> str | None:
    source, node = case.source, case.node
    if case.mechanism not in MASKED or source is None or node is None or not draws(source, node):
        return None
    operand = case.origin.inputs[0] if case.origin.inputs else None
    row = (
        f"in row {operand.index[0]} "
        if operand is not None and len(operand.index or ()) > 1 and operand.index
        else ""
    )
    return (
        f"{row}every choice is masked, so there is nothing to draw from: the state itself is the "
        "fault. Decide what it means (the episode ends, a pass) before it is sampled; a finite "
        "mask would draw what is forbidden"
    )


def _underflowing_product(case: Case) -> str | None:
    """A likelihood that is carried as a product, step by step."""
    if case.mechanism not in ("log_nonpositive", "gradient_singularity", "division_by_zero"):
        return None
    makers = case.culprit.upstream if case.culprit is not None else ()
    factors = [op for op in makers if op.name in PRODUCTS]
    sites = {(op.site.file, op.site.line) for op in factors if op.site is not None}
    codes = {cause.code for cause in case.anomaly.finding.causes}
    if "underflow" not in codes or len(factors) < LONG or len(sites) * 2 > len(factors):
        return None
    line = next(op.site.line for op in factors if op.site is not None)
    return (
        f"the product that line {line} carries from step to step has rounded to 0. Carry its "
        "logarithm: add the logarithms of the factors, and sum over states with `logsumexp`; or "
        "divide by the sum at each step and add up the logarithms of these sums"
    )


def _underflowed_kernel(case: Case) -> str | None:
    """1 / (K @ v) with K = exp(-cost / reg): Sinkhorn's iteration."""
    exp = underflowed_kernel(case)
    if exp is None:
        return None
    low = exp.inputs[0].value if exp.inputs else None
    where = f"in line {exp.site.line} " if exp.site is not None else ""
    return (
        f"exp({number(low)}) {where}rounds to 0, and the scalings divide by sums of such values. "
        "Iterate on the logarithms of the scalings: log u = -logsumexp(log K + log v), and the "
        "same for v; or use a larger regularisation"
    )


def _indefinite(case: Case) -> str | None:
    """No covariance at all: a matrix of distances, correlations that contradict each other."""
    if case.mechanism != "singular_matrix" or not is_indefinite(case):
        return None
    low, high = next(o.eigenvalues for o in case.origin.inputs if o.eigenvalues is not None)
    return (
        f"the smallest eigenvalue of the matrix is {number(low)}, the largest {number(high)}: that is no "
        "rounding error, and no small multiple of the identity mends it. It is no covariance or "
        "kernel matrix as it is built now: look at its formula (distances need a kernel, such as "
        "exp(-d)) or at its numbers"
    )


def _empty(case: Case) -> str | None:
    """A mean over nothing that is shown: no number stands for it."""
    sizes = [o.stats.count for o in case.origin.inputs if o.stats is not None]
    reduces = case.origin.value is not None and math.isnan(case.origin.value)
    if case.anomaly.evidence.sink not in ("observed", "output") or not reduces:
        return None
    if not sizes or any(sizes):
        return None
    return (
        "there is nothing to average: 0 values were left when it was computed, and no number is right "
        "for the mean of nothing. Where groups may be empty, leave those out of what is added up; else "
        "look at what chose them: a filter, a split, `drop_last=True` with fewer samples than a batch"
    )


def _shares_of_nothing(case: Case) -> str | None:
    """`counts / counts.sum(1, keepdim=True)` of a row of zeros."""
    source, quotient = case.source, binary(case.node, cst.Divide)
    total = fn(source, quotient.right) if source is not None and quotient is not None else None
    if case.mechanism != "division_by_zero" or source is None or quotient is None or total is None:
        return None
    if total.name != "sum" or not source.same(total.operand, quotient.left):
        return None
    index = case.culprit.index if case.culprit is not None else None
    what = source.quoted(quotient.left, "the numerator")
    where = f"row {index[0]} of {what}" if index else what
    said = f"{where} adds up to 0: shares of nothing have no value, and no distribution can be made of them"
    if is_count(case.culprit):
        return f"{said}. Leave such rows out where they are chosen, or count one more of each, which gives equal shares"
    if any(cause.code == "underflow" for cause in case.anomaly.finding.causes):
        return f"{said}: all of them were rounded to 0. Stay with their logarithms, whose `torch.softmax` is these shares"
    return f"{said}. Leave such rows out where they are chosen"


def _dead_columns(case: Case) -> str | None:
    """NaN in every row: leaving rows out would leave none."""
    if case.mechanism not in ("nonfinite_data", "nan_literal"):
        return None
    for op in (case.origin, *case.anomaly.evidence.path):
        for part in (*op.inputs, *op.outputs):
            shape = part.stats.shape if part.stats is not None else ()
            columns = part.columns
            if not columns and part.stats is not None and part.index is not None:
                full = len(shape) == 2 and 1 < shape[0] == part.stats.nan
                columns = part.index[1:2] if full and op.name in PARTS else ()
            if columns and len(shape) == 2:
                return _said_of_columns(columns, shape[0])
    return None


def _said_of_columns(columns: tuple[int, ...], rows: int) -> str:
    one = len(columns) == 1
    which = ", ".join(map(str, columns))
    return (
        f"column{'' if one else 's'} {which} hold{'s' if one else ''} no number in any of {rows} rows: "
        f"leaving out rows with NaN would leave none. Leave the column{'' if one else 's'} out, or find "
        "out why nothing was read or computed there"
    )


def _poisoned(case: Case) -> str | None:
    if not any(c.code == "poisoned_state" for c in case.anomaly.finding.causes):
        return None
    operand = case.origin.inputs[0] if case.origin.inputs else None
    bad = f"{operand.stats.nonfinite} of its values" if operand and operand.stats else "values"
    where = (operand.kept_as or operand.source) if operand is not None else None
    what = f"{where} was" if where else "the weights were"
    return (
        f"{what} spoilt before this run began ({bad} are not finite): the run that saved it had failed "
        "already. Take an earlier checkpoint or train anew; `whynan check FILE` names its bad tensors"
    )


def _rate_of_a_schedule(case: Case) -> str | None:
    """lr = NaN: the lines that set it."""
    given = [
        n for n, v in case.anomaly.evidence.hyper.items() if isinstance(v, float) and v - v != 0
    ]
    if case.mechanism != "nonfinite_data" or case.origin.phase != "optimizer" or not given:
        return None
    name, found = given[0], []
    for source in case.files():
        for assign in source.every(cst.Assign):
            target = assign.targets[0].target
            key = source.code(target).removesuffix("]")
            if isinstance(target, cst.Subscript) and key.endswith((f'"{name}"', f"'{name}'")):
                at = f"{short_path(source.path)}:{source.line(assign)}"
                found.append(f"{at} sets {name}, {source.quoted(assign, 'the assignment')}")
    if len(found) != 1:
        return None
    return f"{found[0]}: look at how that number is computed, above all for the first and the last step, and keep it finite there"


def _number_never_set(case: Case) -> str | None:
    """`nan` in a table of settings: to be chosen by somebody who knows."""
    given = [x for x in case.origin.scalars.values() if isinstance(x, float)]
    if case.mechanism == "nan_literal" and case.origin.name in FILLS:
        return None  # a mark that the program put there itself
    if case.mechanism not in ("nonfinite_data", "nan_literal") or not any(map(math.isnan, given)):
        return None
    setting = case.anomaly.evidence.around.setting
    where = f" (`{setting.name}` in {os.path.basename(setting.file)}, line {setting.line})" if setting else ""  # fmt: skip
    return (
        f"the number itself is NaN{where}: a setting that was never set, or one that was computed from "
        "nothing. Only its owner knows what it should be"
    )


def _impossible(case: Case) -> str | None:
    """A forbidden transition or symbol, written as the logarithm of a 0 on purpose."""
    operand = case.culprit
    if case.mechanism != "log_nonpositive" or operand is None or operand.value != 0:
        return None
    summed = [op for op in case.anomaly.evidence.path if op.name in SUMS_IN_LOG_SPACE]
    if case.origin.phase != "init" or not summed or operand.stats is None:
        return None
    what = operand.name or operand.source
    named = f"`{what}`" if what else "the table"
    return (
        f"{named} says that this is impossible ({operand.stats.zeros} of {operand.stats.count} "
        f"entries are 0), and step {case.anomaly.evidence.step} asks for it all the same: under this "
        "model the probability of what was observed is 0. Mend the table or that sample, or smooth "
        "the table; which, only the modeller can say"
    )


def _exponential_of_a_sum(case: Case) -> str | None:
    """A perplexity of a whole text instead of a token."""
    value = case.culprit.value if case.culprit is not None else None
    shown = case.anomaly.evidence.sink in ("observed", "output")
    if case.mechanism != "overflow" or case.origin.name != "exp" or not shown or value is None:
        return None
    return (
        f"{number(value)} is too large for an exponential ({case.dtype} ends at exp({LARGEST.get(case.dtype, 88.7)})). "
        "If it is a sum of losses, divide it by the number of its terms first: a perplexity is the "
        "exponential of the mean loss"
    )


def _wrong_density(case: Case) -> str | None:
    found = impossible(case)
    if found is None:
        return None
    low, high = sorted(found)
    return (
        f"the two log-probabilities are {number(high)} and {number(low)}: under that density what was "
        "drawn is impossible, so that it was drawn from another one (a mixture with random exploration, "
        "a bounded or squashed action). Take both logarithms of the density that acted, of a mixture "
        "`logaddexp` over its parts, or leave such draws out; a bound would keep a ratio of two wrong numbers"
    )


def _odd_data(case: Case) -> str | None:
    odd = case.anomaly.evidence.around.oddity
    if odd is None or not any(c.code == "bad_data" for c in case.anomaly.finding.causes):
        return None
    where = f" in row {odd.row}" if odd.row is not None else ""
    where += f" of column {odd.column}" if odd.column is not None else ""
    return (
        f"the data holds {number(odd.value)}{where} where {number(odd.typical)} is typical: "
        "only its owner knows whether that is a measurement, a unit or a mark of a missing value"
    )


def _equal_values(case: Case) -> str | None:
    """Vectors that belong to equal values: any rotation of them would do."""
    kind = row(case.forward_op).name
    if case.mechanism != "gradient_singularity" or kind not in ("svd", "eigh"):
        return None
    values = "singular values" if kind == "svd" else "eigenvalues"
    return (
        f"equal {values} have no vectors of their own, and the gradient divides by their distance, 0. "
        "Use a form that asks for no vectors: two columns made orthonormal one after the other (a "
        "rotation), a Cholesky factor (whitening, a covariance), the values alone. Noise on the matrix "
        "leaves gradients of 1 over its size"
    )


ATTEMPTS = (
    _equal_values,
    _nothing_to_draw,
    _indefinite,
    _empty,
    _shares_of_nothing,
    _poisoned,
    _dead_columns,
    _rate_of_a_schedule,
    _number_never_set,
    _impossible,
    _exponential_of_a_sum,
    _underflowing_product,
    _underflowed_kernel,
    _wrong_density,
    _odd_data,
)

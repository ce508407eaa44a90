"""The logarithm of a function that leaves the type's range, though its logarithm would not."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import libcst as cst

from whynan.ops.table import TABLE, row
from whynan.repair.calls import Fn, binary, call_of, fn, is_one, number_of, one_minus
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.edit import Edit
from whynan.repair.source import Expression, Source

MECHANISMS = ("overflow", "log_nonpositive", "gradient_singularity")
FORMS = {name: op.log_is for op in TABLE for name in (op.name, *op.also) if op.log_is}
ROOT = re.compile(r"(math|np|torch|numpy)\.sqrt\(2(\.0*)?\)|2(\.0*)? ?\*\* ?0?\.5|1\.41421\d*")
INSIDE = (cst.BinaryOperation, cst.UnaryOperation, cst.Attribute, cst.Subscript)
HALF, TWICE = repr(math.log(0.5)), f" + {math.log(2)!r}"
Factors = tuple[list[Expression], list[Expression]]  # above and below the stroke


def propose(case: Case) -> Iterator[Candidate]:
    source, node = case.source, case.node
    if source is None or node is None or case.mechanism not in MECHANISMS:
        return
    for call in source.every(cst.Call, source.scope(node)):
        log = fn(source, call)
        if log is None or log.name != "log":
            continue
        for factor, name, text in _in_range(source, log):
            if node in (call, factor):
                title = f"take the logarithm of `{name}` as a whole: it stays in the range of the type, `{name}` does not"
                inside = isinstance(source.parent(call), INSIDE) and " " in text
                edit = Edit(source).replace(call, f"({text})" if inside else text)
                yield from case.change(edit, "log_of_function", title, Tier.EXACT)


def _in_range(source: Source, log: Fn) -> Iterator[tuple[Expression, str, str]]:
    """The factor that is to blame, what it is called, and the logarithm of the whole."""
    above, below = _factors(log.operand)
    for factor in (*above, *below):
        found = _form(source, factor)
        rest = None if found is None else _rest(source, above, below, factor)
        if found is None or rest is None:
            continue
        blamed, name, form = found
        if factor in below:
            text = f"{rest or '0'} - ({form})"
        else:
            text = f"{rest} + {form}" if rest else form
        if rest == HALF and form.endswith(TWICE):  # `0.5 * (1 + erf(u))`
            text = form.removesuffix(TWICE)
        yield blamed, name, text


def _factors(node: Expression) -> Factors:
    product, quotient = binary(node, cst.Multiply), binary(node, cst.Divide)
    if product is not None:
        left, right = _factors(product.left), _factors(product.right)
        return [*left[0], *right[0]], [*left[1], *right[1]]
    if quotient is not None:
        left, right = _factors(quotient.left), _factors(quotient.right)
        return [*left[0], *right[1]], [*left[1], *right[0]]
    return [node], []


def _rest(
    source: Source, above: list[Expression], below: list[Expression], but: Expression
) -> str | None:
    """The logarithm of the other factors: of plain numbers together, of tensors each."""
    sides = [[f for f in side if f is not but] for side in (above, below)]
    plain = [[f for f in side if _is_plain(source, f)] for side in sides]
    terms = [
        f"{sign} torch.log({source.code(f)})"
        for sign, side in zip("+-", sides, strict=True)
        for f in side
        if not _is_plain(source, f)
    ]
    product = " * ".join(map(source.code, plain[0])) or "1"
    text = " / ".join((product, *map(source.code, plain[1])))
    numbers = [[number_of(f) for f in side] for side in plain]
    if any(n is not None and n <= 0 for side in numbers for n in side):
        return None
    if any(n is None for side in numbers for n in side):
        terms.insert(0, f"+ math.log({text})")
    elif plain[0] or plain[1]:
        value = math.prod(n or 1 for n in numbers[0]) / math.prod(n or 1 for n in numbers[1])
        terms.insert(0, f"+ {math.log(value)!r}")
    return " ".join(terms).removeprefix("+ ")


def _is_plain(source: Source, factor: Expression) -> bool:
    return number_of(factor) is not None or bool(re.fullmatch(r"math\.\w+", source.code(factor)))


def _form(source: Source, node: Expression) -> tuple[Expression, str, str] | None:
    """Of `cosh(x)`, `1 - Normal(m, s).cdf(x)`, `1 + erf(z / sqrt(2))`."""
    known = call_of(source, node, *FORMS)
    if known is not None:
        return known.node, known.name, _at(FORMS[known.name], source.receiver(known.operand))
    node = source.definition(node) or node
    plus, complement = binary(node, cst.Add), one_minus(node)
    inner = plus.right if plus is not None and is_one(plus.left) else complement or node
    sign = "" if complement is None else "-"
    erf = call_of(source, inner, "erf") if inner is not node else None
    if erf is not None:
        form = _at(row("ndtr").log_is, f"{sign}{_times_root_of_two(source, erf.operand)}")
        return erf.node, "erf", form + TWICE
    cdf = source.definition(inner) or inner
    z = _standardised(source, cdf) if plus is None else None
    return None if z is None else (cdf, "cdf", _at(row("ndtr").log_is, f"{sign}{z}"))


def _times_root_of_two(source: Source, u: Expression) -> str:
    quotient = binary(u, cst.Divide)
    if quotient is not None and ROOT.fullmatch(source.code(quotient.right)):
        return source.receiver(quotient.left)
    return f"1.4142135623730951 * {source.receiver(u)}"


def _standardised(source: Source, node: Expression) -> str | None:
    """z of `Normal(mean, spread).cdf(x)`, in parentheses."""
    cdf = fn(source, node)
    if cdf is None or cdf.name != "cdf" or cdf.namespace is not None or len(cdf.rest) != 1:
        return None
    made = source.definition(cdf.operand) or cdf.operand
    if not isinstance(made, cst.Call) or source.code(made.func).split(".")[-1] != "Normal":
        return None
    given = {arg.keyword.value if arg.keyword else i: arg.value for i, arg in enumerate(made.args)}
    mean, spread = given.get(0, given.get("loc")), given.get(1, given.get("scale"))
    if mean is None or spread is None:
        return None
    x = source.code(cdf.rest[0].value)
    centred = x if number_of(mean) == 0 else f"{_whole(source, cdf.rest[0].value)} - {_whole(source, mean)}"  # fmt: skip
    if number_of(spread) == 1:
        return f"({centred})"
    divisor = source.receiver(spread) if number_of(spread) is None else source.code(spread)
    return f"(({centred}) / {divisor})"


def _whole(source: Source, node: Expression) -> str:
    return source.receiver(node) if isinstance(node, cst.BinaryOperation) else source.code(node)


def _at(form: str, x: str) -> str:
    whole = x if x.startswith("(") else f"({x})"
    text = re.sub(r"\(x\)|\bx\b", lambda m: whole if m[0] == "(x)" else x, form)
    return text.replace(".abs().abs()", ".abs()")

"""A `where` whose unchosen branch has no finite gradient.

What it catches
    `torch.where(c, f(x), d)` where c tests x, f is log, sqrt, a division, a fractional power, acos,
    asin or exp, and x is not made harmless inside.

Why it hurts
    Both branches are computed and both get a gradient. Where c is false the gradient of f is
    multiplied by 0, and 0 times inf is NaN: the value is clean, the gradient is not.

Example
    y = torch.where(x > 0, torch.log(x), 0.0)

Use instead
    y = torch.where(x > 0, torch.log(torch.where(x > 0, x, 1.0)), 0.0)

When it is fine
    Without gradients (NumPy, `no_grad`, integer results), or when the operand was sanitised before.
"""

from __future__ import annotations

from collections.abc import Iterator

from whynan.lint.facts import AT_ZERO, bounded_above, has_gradient, no_slope, nonzero, says, tested
from whynan.lint.rewrite import call, inside, repeatable
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import number_of, resolve, same, strip
from whynan.ops.table import TABLE, row, that

# Operations that are infinite, or have an infinite slope, at numbers that people's data hold.
RISKY = {
    op.name: op
    for op in TABLE
    if op.reads == "elementwise" and op.is_risky and "lint" not in (op.lacks or ())
    if not op.domain or max(op.singular) >= 0
}
QUESTIONS = that("asks") | {"compare", "invert", "and", "or"}


@pattern("N021", "where-unsafe", "warning", ops=("where",), fix="sometimes", rank=10, operands=3)
def where_unsafe(term: Term, here: Walker) -> Match | None:
    if term.lib == "numpy" or not has_gradient(term, here):
        return None
    condition = term.args[0]
    for branch in (1, 2):
        for risky, safe in _risky(term.args[branch]):
            known = RISKY[risky.op]
            operand, harmless = risky.args[known.place], str(known.harmless)
            if risky.op in AT_ZERO | {"div"} and _leaves_out_large(condition, branch):
                continue
            if not _tests(condition, operand) or all(map(no_slope, risky.args)):
                continue
            if 0 not in known.singular and not _looks_at_an_end(condition, known.singular):
                continue  # `where(cosine > 0, acos(cosine), ...)` does not keep 1 away
            if tested(operand, here) or (risky.op == "div" and _is_a_bound(condition, operand)):
                continue
            edit = None
            if (
                safe
                and known.domain is not None
                and inside(risky, term)
                and inside(condition, term)
                and repeatable(condition)
            ):
                # A whole number leaves the dtype as it is, whatever that is.
                number = str(int(float(harmless)))
                parts = (operand, number) if branch == 1 else (number, operand)
                edit = call(term, here, "torch.where", condition, *parts, instead=operand)
            word = "the division" if risky.op == "div" else risky.op
            return Match(
                term,
                f"where the condition rejects it, `{word}` still gets a gradient: 0 times inf is NaN",
                f"make the operand harmless inside as well: where(c, x, {harmless})",
                edit=edit,
                severity="info"
                if risky.op == "div" or known.domain is None
                else None,  # seldom differentiated
            )
    return None


def _is_a_bound(condition: Term, divisor: Term) -> bool:
    """`where(x < beta, x / beta, x)`: what values are compared with, not itself compared with a number."""
    c = resolve(condition)
    if (
        c.op != "compare"
        or len(c.args) != 2
        or resolve(divisor).op not in ("param", "name", "attr", "unknown")
    ):
        return False
    return same(c.args[1], divisor) and number_of(c.args[0]) is None


def _leaves_out_large(condition: Term, branch: int) -> bool:
    """`where(x < 1, 1 / x, 0)`: what is rejected is at least 1, and does no harm."""
    c = resolve(condition)
    bound = number_of(c.args[1]) if c.op == "compare" and len(c.args) == 2 else None
    takes_less = ("Lt", "LtE") if branch == 1 else ("Gt", "GtE")
    return isinstance(bound, int | float) and bound > 0 and c.value in takes_less


def _looks_at_an_end(condition: Term, ends: tuple[float, ...]) -> bool:
    """Is something compared with about 1, where `acos` and its like end?"""
    c = resolve(condition)
    if c.op in ("and", "or", "invert"):
        return any(_looks_at_an_end(a, ends) for a in c.args)
    numbers = [n for a in c.args if isinstance(n := number_of(a), int | float)]
    return not ends or any(abs(abs(n) - abs(end)) < 0.1 for n in numbers for end in ends)


def _risky(branch: Term, depth: int = 4, safe: bool = True) -> Iterator[tuple[Term, bool]]:
    """Dangerous operations, and whether nothing that could fail itself, or joins elements, stands
    between them and the `where`."""
    t = resolve(branch)
    if t.op in RISKY and _is_dangerous(t):
        yield t, safe
    if depth and t.op not in ("where", "detach", "nan_to_num"):
        safe = safe and row(t.op).reads == "elementwise" and not row(t.op).is_risky
        for part in t.args:
            yield from _risky(part, depth - 1, safe)


def _is_dangerous(term: Term) -> bool:
    known = RISKY[term.op]
    place = known.place
    if place >= len(term.args) or term.lib in ("numpy", "math"):
        return False
    operand = term.args[place]
    if number_of(operand) is not None or operand.kind in ("scalar", "array"):
        return False
    if known.domain is None:
        return not bounded_above(operand) and strip(operand).op in (
            "param",
            "name",
            "unknown",
            "layer",
        )
    if term.op == "pow":
        exponent = term.const("exponent")
        if not isinstance(exponent, int | float) or (exponent > 0 and float(exponent).is_integer()):
            return False
    if any(known.singular):
        return strip(operand).op not in ("clamp", "where")
    return not nonzero(operand)


def _tests(condition: Term, operand: Term) -> bool:
    """Does the condition look at the operand itself?"""
    c = resolve(condition)
    if c.op not in QUESTIONS:
        return False
    inner = strip(operand)
    target = operand if operand.op == "name" or inner.op in ("param", "unknown") else inner
    if says(operand, "freq|hz|(^|_)time$|grid"):
        return False  # a table of constants
    if inner.op in ("div", "mul") and any(a.op == "name" and _looks_at(c, a) for a in inner.args):
        return True  # `log(y / mu)` under `y > 0`
    return _looks_at(c, target) or (operand.op == "name" and _looks_at(c, operand))


def _looks_at(condition: Term, target: Term, depth: int = 5) -> bool:
    """Is the target compared as it is, not as a part of something else?"""
    c = resolve(condition)
    if same(c, target) or same(condition, target):
        return True
    return (
        depth > 0
        and (c.op in QUESTIONS or c.op in ("abs", "neg"))
        and any(_looks_at(a, target, depth - 1) for a in c.args)
    )

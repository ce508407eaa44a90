"""What can be said about a term, and how surely: not zero, bounded, guarded, or tested before."""

from __future__ import annotations

import ast
import math
import re
from enum import IntEnum
from typing import TYPE_CHECKING

from whynan.lint.terms import (
    SHAPE_ATTRIBUTES,
    SHAPE_OPS,
    Term,
    names_in,
    number_of,
    resolve,
    same,
    same_values,
    strip,
    walk_through,
)
from whynan.ops.table import OPERATORS, TABLE, row, that

if TYPE_CHECKING:
    from whynan.lint.flow import Walker

EPS = re.compile(r"(^|[._])(eps\w*|epsilon\w*|tiny|smooth\w*|delta|floor|jitter|min_\w+)$", re.I)
MASK = re.compile(r"mask|valid|(^|_)is_|keep|visible|(^|_)pad|present", re.I)
SCHEDULE = re.compile(
    r"alpha|beta|sigma|gamma|decay|freq|theta|(^|[._])t$|time|step|schedule|lr|arange|pos|scale",
    re.I,
)
LOG_PROBABILITY = re.compile(
    r"(^|[._])(log_?(softmax|p|probs?|probabilit(y|ies))|distributions)$", re.I
)
# Files whose results nobody differentiates.
NO_GRADIENT = re.compile(
    r"metric|(^|[/_])eval|process(ing|or)|feature_extract|quantiz|schedul|pipelin|inference|(^|/)data/"
    r"|beam|decod(ing|e)\b|denois|_search|assigner|tracker|match_cost|matcher|sampl(er|ing)|export|dataparser|(^|[/_])(render|plot|visuali[sz])",
    re.I,
)
# Files that check a program, and are not part of it.
TESTS = re.compile(r"(^|/)(tests?/|test_\w+\.py$|conftest)|_test\.py$")
# Functions of one number whose value or slope is infinite at 0, and nowhere else.
AT_ZERO = frozenset(op.name for op in TABLE if op.of == "self" and set(op.singular) == {0})
AT_ZERO -= {"pow"}  # of which the exponent decides
PICKING = ("compare", "and", "invert", "nonzero")  # of an index
TRUTHS = that("compares") | {"compare", "invert", "not", "bool"}
FLAT = that("compares", "counts", "constant", "flat") | {"compare", "invert", "detach"}


class Sure(IntEnum):
    """How surely a value is not 0."""

    NO = 0
    ROUNDED = 1  # it is not 0 in mathematics, but small values are rounded to 0
    YES = 2


def is_eps(term: Term) -> bool:
    """A constant or a name that stands for a small positive number."""
    value = number_of(term)
    if value is not None:
        return isinstance(value, int | float) and value != 0
    inner = resolve(term)
    if inner.op == "attr" and inner.value in ("eps", "tiny", "smallest_normal"):
        return True
    return bool(term.op == "name" and EPS.search(str(term.value))) or (
        inner.op == "param" and bool(EPS.search(str(inner.value)))
    )


def nonzero(term: Term, depth: int = 8) -> Sure:
    """Is the value kept away from 0 by the way it is made?"""
    if depth == 0:
        return Sure.NO
    if is_eps(term):
        return Sure.YES
    t = strip(term)
    known = row(t.op)
    parts = (nonzero(a, depth - 1) for a in t.args)
    if t.op == "add":  # a shift by a constant says that the author thought of zero
        return max(parts, default=Sure.NO)
    if t.op == "sub" and (rest := one_minus(t)) is not None and strip(rest).op == "add":
        return max(
            Sure.YES if number_of(a) else Sure.NO for a in strip(rest).args
        )  # 1 - (0.98 * p + 0.01)
    if t.op in ("clamp", "clamp_min", "maximum"):
        floor = number_of(t.args[1]) if t.op == "maximum" and len(t.args) > 1 else t.const("min")
        return Sure.NO if isinstance(floor, int | float) and floor <= 0 else Sure.YES
    if t.op == "masked_fill" and t.const("value") == 0:
        return Sure.NO
    if t.op in ("nan_to_num", "where", "ifexp", "boolop", "masked_fill", "patched"):
        return Sure.YES
    if known.range is not None and 0 not in known.range:
        return Sure.ROUNDED if 0 in known.rounds else Sure.YES
    if t.op in (".numel", ".size", "full", "ones") or (t.op == "builtin" and t.value == "len"):
        return Sure.YES
    if t.op == "attr":
        return Sure.YES if t.value in ("shape", "eps", "tiny") else Sure.NO
    if t.op == "mul":
        return min(parts, default=Sure.YES)
    if t.op == "neg" or "positive" in known.does:
        return next(parts, Sure.NO)
    return max(parts, default=Sure.NO) if t.op == "merged" else Sure.NO


def tested(term: Term, here: Walker) -> bool:
    """Was something the term is made of looked at by an `if` or `assert` before?"""
    return bool(_roots(term) & here.tested)


def _roots(term: Term, depth: int = 5) -> set[str]:
    names = names_in(term)
    binding = term.binding if depth and term.op == "name" else None
    if binding is not None and binding.op not in ("param", "merged"):
        names |= _roots(binding, depth - 1)
    return names


def guarded_divisor(term: Term, here: Walker) -> bool:
    """Nothing to say about a division by this: also where only rounding could make it 0."""
    return nonzero(term) > Sure.NO or tested(term, here) or is_picked(term)


def is_picked(term: Term) -> bool:
    """Chosen by a comparison, as in `n[n > 0]`?"""
    for t in walk_through(term, 4):
        if t.op == "index" and len(t.args) > 1:
            keys = t.args[1].args if t.args[1].op == "tuple" else (t.args[1],)
            if any(resolve(key).op in PICKING for key in keys):
                return True
    return False


def bounded_above(term: Term, depth: int = 8) -> bool:
    """Can the value not grow large? (Then `exp` of it does not overflow.)"""
    if depth == 0:
        return False
    if number_of(term) is not None:
        return True
    t = strip(term)
    if _is_called(term, LOG_PROBABILITY):
        return True
    if t.op in ("where", "patched", "masked_fill") or is_bounded(t.op):
        return t.op != "clamp" or t.get("max") is not None
    if t.op == "ifexp":
        return all(bounded_above(a, depth - 1) for a in t.args[1:])
    if t.op == "neg":
        inner = strip(t.args[0])
        known = row(inner.op).range
        floor = inner.op in ("clamp", "clamp_min") and inner.get("min") is not None
        bounded = known is not None and known.low > -math.inf
        return floor or bounded or nonnegative(inner, depth - 1) or says(inner, r"dist(ance)?s?$")
    if t.op == "sub" and len(t.args) == 2:
        a, b = t.args
        return _is_max(b) or (bounded_above(a, depth - 1) and nonnegative(b, depth - 1))
    if t.op in ("add", "merged"):
        return all(bounded_above(a, depth - 1) for a in t.args)
    if t.op in ("mul", "div") and len(t.args) == 2:
        a, b = t.args
        if any(_is_negative(x) and nonnegative(y, depth - 1) for x, y in ((a, b), (b, a))):
            return True
        if any(strip(x).op == "sub" and _is_max(strip(x).args[-1]) for x in (a, b)):
            return True  # at most 0, times what is meant to be positive
        return (bounded_above(a, depth - 1) and (number_of(b) is not None or bounded_above(b, depth - 1)))  # fmt: skip
    return False


def _is_called(term: Term, pattern: re.Pattern[str]) -> bool:
    """Does a variable, or one that it was made from by shape alone, have such a name?"""
    for _ in range(8):
        if term.op in ("name", "param") and pattern.search(str(term.value)):
            return True
        inner = term.binding if term.op == "name" else term.args[0] if term.op in SHAPE_OPS and term.args else None  # fmt: skip
        if inner is None:
            return False
        term = inner
    return False


def is_bounded(op: str) -> bool:
    """Whether an operation gives no large numbers, whatever it is given."""
    known = row(op)
    below = known.range is not None and known.range.high < math.inf
    return below or bool(known.does & {"ceiling", "compresses", "constant"} and op != "full")


def _is_negative(term: Term) -> bool:
    value = number_of(term)
    if isinstance(value, int | float):
        return value < 0
    inner = strip(term)
    if inner.op in ("mul", "div") and len(inner.args) == 2:
        a, b = inner.args
        return any(_is_negative(x) and nonnegative(y) for x, y in ((a, b), (b, a)))
    # What is negated beside a square, as in `-gamma * d**2`, is meant to be positive.
    return inner.op == "neg"


def nonnegative(term: Term, depth: int = 8) -> bool:
    """Is the value at least 0 by the way it is made?"""
    if depth == 0:
        return False
    value = number_of(term)
    if isinstance(value, int | float):
        return value >= 0
    t = strip(term)
    known = row(t.op)
    if known.range is not None and known.range.low >= 0:
        return True
    if t.op == "clamp" or t.op == "clamp_min":
        low = t.const("min")
        return isinstance(low, int | float) and low >= 0
    if t.op == "pow":
        exponent = t.const("exponent")
        if isinstance(exponent, int | float) and exponent % 2 == 0:
            return True
    if t.op == "mul" and len(t.args) == 2 and same_values(*t.args):
        return True
    parts = t.args if t.op in ("add", "mul", "div") else t.args[:1]
    positive = "positive" in known.does and bool(parts)
    return positive and all(nonnegative(a, depth - 1) for a in parts)


def _is_max(term: Term) -> bool:
    """`x - x.max(...)`, however the maximum was taken; any variable called max counts."""
    t = strip(term)
    if t.op in ("piece", "attr") and t.args:
        t = strip(t.args[0])
    if t.op in ("max", "amax", "logsumexp", "builtin", ".max"):
        return True
    spelled = f"{term.value} {resolve(term).value}"
    return bool(re.search(r"max|lse|logsumexp|log_?z|norm", spelled, re.I))


def is_square(term: Term) -> Term | None:
    """The base of `x**2`, `x.pow(2)`, `x.square()`, `x * x`."""
    t = strip(term)
    if t.op == "square":
        return t.args[0]
    if t.op == "pow" and t.const("exponent") == 2:
        return t.args[0]
    if t.op == "mul" and len(t.args) == 2 and same_values(*t.args):
        return t.args[0]
    return None


def summed_square(term: Term) -> Term | None:
    """The x of `(x**2).sum()`, `einsum("bi,bi->b", x, x)`, `x.dot(x)`."""
    t = strip(term)
    if t.op == "sum" and t.args:
        return is_square(t.args[0])
    factors = t.args[1:] if t.op == "einsum" else t.args if t.op == "dot" else ()
    return factors[0] if len(factors) == 2 and same(*factors) else None


def one_minus(term: Term) -> Term | None:
    """The x of `1 - x`, also written `-x + 1` or `1.0 + (-x)`."""
    t = strip(term)
    if len(t.args) != 2:
        return None
    if t.op == "sub" and number_of(t.args[0]) == 1:
        return t.args[1]
    if t.op == "add":
        for a, b in (t.args, t.args[::-1]):
            inner = strip(a)
            if number_of(b) == 1 and inner.op == "neg":
                return inner.args[0]
    return None


def log_of_one_minus(log: Term, inner: Term) -> Term | None:
    """The x of `log(1 - x)` and `log1p(-x)`, of which `inner` is what the logarithm is taken of."""
    if log.op != "log1p":
        return one_minus(inner)
    negative = strip(inner)
    return negative.args[0] if negative.op == "neg" else None


def one_plus(term: Term) -> Term | None:
    """The x of `1 + x`."""
    t = strip(term)
    if t.op == "add" and len(t.args) == 2:
        for a, b in (t.args, t.args[::-1]):
            if number_of(a) == 1 and number_of(b) is None:
                return b
    return None


def small_eps_added(term: Term) -> tuple[Term, bool]:
    """A term without a small positive constant added to it, and whether there was one."""
    t = strip(term)
    if t.op in ("add", "sub") and len(t.args) == 2:
        a, b = t.args
        for rest, extra in ((a, b), (b, a)):
            value = number_of(extra)
            small = isinstance(value, int | float) and 0 < value <= 1e-5
            if (small or (value is None and is_eps(extra))) and (t.op == "add" or extra is b):
                return rest, True
    return term, False


def is_mask(term: Term) -> bool:
    """Boolean by the way it is made, or called a mask."""
    t = strip(term)
    if t.op in TRUTHS or t.op in ("and", "or"):
        return True
    if t.op == "attr" and MASK.search(str(t.value)):
        return True
    names = [str(x.value).rsplit(".", 1)[-1] for x in (term, t) if x.op in ("param", "name")]
    if any(map(MASK.search, names)):
        return True
    rest = one_minus(t)
    return rest is not None and is_mask(rest)


# Of the shape operations, those that leave the type as it is.
PLACES = (that("keeps") - that("casts", "enters")) | {"cpu", "cuda"}
STAY_WHOLE = ({op.name for op in OPERATORS.values()} - {"div", "pow"}) | {"square", "index"}
WHOLE = that("whole") | {"compare", ".long", ".int", ".randint"}
BOOL = re.compile(r"(^|\.)bool_?$")


def is_binary(term: Term, depth: int = 8) -> bool:
    """Is every value 0 or 1 by the way it is made? A name says nothing: masks can be weights."""
    t = resolve(term)
    if depth == 0:
        return False
    if t.op.removeprefix(".") in TRUTHS or _names_bool(t):
        return True
    if t.op in ("and", "or", "mul", "merged"):
        return bool(t.args) and all(is_binary(a, depth - 1) for a in t.args)
    if t.op == "ifexp":
        return all(is_binary(a, depth - 1) for a in t.args[1:])
    rest = one_minus(t)
    if rest is not None:
        return is_binary(rest, depth - 1)
    keeps = t.op in SHAPE_OPS or t.op in (".long", ".int") or (t.op == "attr" and t.value in SHAPE_ATTRIBUTES)  # fmt: skip
    return keeps and bool(t.args) and is_binary(t.args[0], depth - 1)


def _names_bool(term: Term) -> bool:
    """`.to(torch.bool)`, `.astype(bool)`, `torch.tensor(..., dtype=torch.bool)`."""
    if term.op not in ("cast", "tensor", "as_tensor"):
        return False
    return any(
        isinstance(t.node, ast.Name | ast.Attribute) and BOOL.search(ast.unparse(t.node))
        for t in (*term.args[1:], *term.kw.values())
    )


def is_whole(term: Term, depth: int = 8) -> bool:
    """Is every value a whole number, in a type of whole numbers, by the way it is made?"""
    t = resolve(term)
    if t.op == "const":
        return isinstance(t.value, int)
    if t.op in WHOLE:
        return "dtype" not in t.kw and all(is_whole(a) for a in t.args if a.op == "const")
    if t.op in STAY_WHOLE or t.op in PLACES:
        return bool(t.args) and depth > 0 and is_whole(t.args[0], depth - 1) and (
            t.op in PLACES or t.op == "index" or all(is_whole(a, depth - 1) for a in t.args)
        )  # fmt: skip
    return False


def has_gradient(term: Term, here: Walker) -> bool:
    """May a gradient flow through this? Not in NumPy, under `no_grad`, in metrics and processing."""
    if here.no_grad or term.kind not in ("tensor", "?") or NO_GRADIENT.search(here.source.path):
        return False
    return not cut_off(term)


def cut_off(term: Term, depth: int = 4) -> bool:
    """Is all that it is made of detached?"""
    if term.op == "detach" or number_of(term) is not None:
        return True
    if term.op == "name":
        return depth > 0 and term.binding is not None and cut_off(term.binding, depth - 1)
    known = bool(row(term.op).name) or term.op in SHAPE_OPS
    return depth > 0 and known and bool(term.args) and all(cut_off(a, depth - 1) for a in term.args)


def no_slope(term: Term, depth: int = 6) -> bool:
    """Counted, compared or constant: no gradient flows into it."""
    if number_of(term) is not None or depth == 0:
        return depth > 0
    t = strip(term)
    if t.op in FLAT:
        return True
    computed = row(t.op).name or t.op in ("and", "or")
    return bool(computed and t.args) and all(no_slope(a, depth - 1) for a in t.args)


def says(term: Term, pattern: str) -> bool:
    """Does a name in the term match?"""
    return any(re.search(pattern, name.rsplit(".", 1)[-1], re.I) for name in names_in(term))

"""Whether a value becomes 0 on ordinary input: a whole vector, a distance, a mask that selects nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator

from whynan.lint.facts import is_mask
from whynan.lint.terms import SHAPE_OPS, Term, number_of, strip, walk_through
from whynan.ops.table import that

GENERIC = re.compile(
    r"eig|svd|(^|_)qr\b|null|randn|normal_|\bnormal\b|sample|\brand|kaiming|xavier", re.I
)
DIFFERENCE = re.compile(r"(^|[._])(diffs?|delta|difference|displacement|residuals?|errors?)(_|$)")
OF_DATA = re.compile(r"label|target|valid|ignore|neg|pos(itive)?s?$|(^|_)fg|foreground", re.I)
# What hides the ends of sequences leaves something of each.
OF_LENGTHS = re.compile(r"pad|seq|len|attention_mask", re.I)
MASKS = re.compile(r"mask", re.I)
SELECTS = re.compile(
    r"valid|pos(itive)?s?$|(^|_)fg|foreground|pad|seq|len", re.I
)  # of a mask's own name
AS_IT_IS = ("piece", "item", "index", "unknown", "merged")  # nothing is known of its making
CONSTANT = that("constant")
PLACES = re.compile(r"(^|[._])(pos|positions?|coords?|coordinates|xyz|points?)(_|$)", re.I)


def is_generic(term: Term) -> bool:
    """Drawn at random or from a factorisation: not zero, and not constant, in practice."""
    return any(GENERIC.search(f"{t.op} {t.value or ''}") for t in _made_of(term))


def _made_of(term: Term, depth: int = 12) -> Iterator[Term]:
    """What a value is made of, as far as that is known: not what a network or a gradient was given."""
    yield term
    if depth == 0 or term.op in ("unknown", "layer") or term.op.startswith("."):
        return
    if term.op == "name" and term.binding is not None:
        yield from _made_of(term.binding, depth - 1)
    for child in term.children:
        yield from _made_of(child, depth - 1)


def whole_vector(x: Term) -> bool:
    """Made so that all of it is 0 now and then: cut off, masked, or orthogonal to nothing."""
    t = strip(x)
    return t.op in ("relu", "cross") or (t.op == "mul" and any(map(is_mask, t.args)))


def distance(x: Term) -> bool:
    """A difference, which is 0 where two things are equal, or what may be 0 by itself."""
    t = strip(x)
    if t.op == "sub" and len(t.args) == 2 and all(number_of(a) is None for a in t.args):
        return not any(map(PLACES.search, _spelled(t)))  # no two atoms are in one place
    named = any(n.op == "name" and DIFFERENCE.search(str(n.value)) for n in (x, t))
    named |= t.op == "param" and bool(DIFFERENCE.search(str(t.value)))
    return named or whole_vector(x)


def nothing_selected(mask: Term) -> bool:
    """What a batch may have none of: a comparison with labels, what is valid or positive."""
    if any(t.op in CONSTANT for t in walk_through(mask, 8)):
        return False  # `1 - eye(n)`
    names = _spelled(mask)
    if any(map(OF_LENGTHS.search, names)):
        return False
    if any(map(OF_DATA.search, names)) or strip(mask).op == "relu":
        return True
    # A mask that was handed in and is compared with a number is the mask that was handed in.
    made = strip(mask).op in ("compare", "and", "or", "invert")
    return made and not (names and all(map(MASKS.search, names)))


def _spelled(term: Term, depth: int = 8) -> set[str]:
    """The last words of the names that a value was made from."""
    if (
        term.op == "name"
        and depth
        and (made := term.binding) is not None
        and made.op not in AS_IT_IS
    ):
        own = {_last(term)} if SELECTS.search(_last(term)) else set()
        return own | _spelled(made, depth - 1)
    if term.op in ("name", "param", "attr"):
        return {_last(term)}
    found: set[str] = set()
    parts = term.args[:1] if term.op in SHAPE_OPS else term.args
    return found.union(*(_spelled(a, depth - 1) for a in parts)) if depth else found


def _last(term: Term) -> str:
    return str(term.value).rsplit(".", 1)[-1]

"""One row of the table of operations, and how a row is written."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

# Which elements of its operands one element of the result depends on.
Reads = Literal[
    "elementwise",  # those of the same place, or all where the result is their sum or mean
    "where",  # of the same place, the one that the condition chooses
    "row",  # all along a dimension
    "prefix",  # along a dimension, up to its own place
    "reduction",  # all along the dimensions that are gone
    "choice",  # the one whose place the second result tells; without one, as a reduction
    "product",  # a row of the first operand, a column of the second
    "lists",  # of lists of tensors, those of the same place in the list
    "join",  # one of the pieces
    "lookup",  # the element that an index names
    "view",  # one of the same storage
    "move",  # one that stood elsewhere, or none
    "put",  # what stood there, and what was put there
    "bag",  # the rows that one bag names
    "matrix",  # a whole matrix
    "transform",  # all along the transformed dimensions
    "cross",  # the other two components
    "window",  # the part under the kernel
    "channel",  # all of the same channel
    "features",  # all in the last dimensions
    "sample",  # all of the same sample
    "heads",  # all of the same sample and head
    "directions",  # of a weight in two parts, all along a dimension
    "nothing",  # of an operand at most the shape
    "unknown",
]  # fmt: skip
Does = Literal[
    "allocates",  # memory that nobody has written yet
    "asks",  # whether a value is finite
    "batchwise",  # keeps the places along the first dimension, the batch's, apart
    "casts",
    "ceiling",  # bounds from above
    "compares",  # its result is true or false
    "differs",  # compares two tensors entry by entry, and takes the mean if nothing else is asked
    "compresses",  # of finite numbers it is never large
    "constant",  # the same numbers whatever the data
    "copies",  # hands its values on unchanged, never an origin by itself
    "counts",  # things: bins, entries that are not 0
    "draws",  # random numbers in a floating type: in another one they are others
    "enters",  # values come in from outside: torch.tensor, from_numpy, torch.load
    "faithful",  # cannot make a non-finite value out of finite ones
    "fills",  # with a number that is an argument, not computed
    "flat",  # its slope is 0 wherever it has one
    "floor",  # bounds from below
    "grows",  # beyond the type's largest number at an ordinary argument
    "keeps",  # the values of its operand, in another shape, place or type
    "largest",
    "multiplies",  # what it gets, and adds nothing else: a long chain of it rounds to 0
    "normalises",  # by mean and spread, and an eps: never large, not even where all values are equal
    "overwrites",  # in place, without a look at what was there
    "positive",  # where its operands are
    "picks",  # elements of its operand
    "random",
    "selects",  # one of its operand's values, by their size
    "smallest",
    "spares",  # leaves NaN out
    "splits",  # into several tensors
    "spread",  # how far values are apart; torch warns of it where there are too few
    "squares",
    "tensor",  # a method of that name is a tensor's, not an array's or another object's
    "whole",  # of whole numbers, in a type of theirs, if it is not given floats
    "turns",  # a view whose derivative is such a view again: nothing is computed at its node
]  # fmt: skip

# How the same can be computed without the kernel that torch has chosen.
Other = Literal[
    "math",  # attention by matrix products and a softmax
    "windows",  # a convolution by products of every window with the weights
    "products",  # a matrix product by multiplying and adding
    "one by one",  # an update of one tensor after the other, by torch's plain optimizers
    "without oneDNN",
    "without cuDNN",
]


@dataclass(frozen=True, slots=True)
class Domain:
    """The numbers from one end to the other, perhaps but for one."""

    low: float = -math.inf
    high: float = math.inf
    closed: tuple[bool, bool] = (True, True)  # whether the ends belong to it
    hole: float | None = None
    said: str = ""  # in words, where the ends are not the whole story

    def __contains__(self, x: float) -> bool:
        """Infinite ends belong to it, and NaN is not outside."""
        is_open = (x == self.low and not self.closed[0]) or (x == self.high and not self.closed[1])
        beyond = x < self.low or x > self.high or x == self.hole
        return not beyond and (math.isinf(x) or not is_open)

    def __str__(self) -> str:
        left, right = "(["[self.closed[0]], ")]"[self.closed[1]]
        return self.said or f"{left}{self.low:g}, {self.high:g}{right}"

    @property
    def ends(self) -> tuple[float, ...]:
        return tuple(end for end in (self.low, self.high) if math.isfinite(end))

    @property
    def poles(self) -> tuple[float, ...]:
        """Where the function is infinite: an end that does not belong to it, the hole."""
        hole = () if self.hole is None else (self.hole,)
        return (*(end for end in self.ends if end not in self), *hole)


def between(text: str, said: str = "") -> Domain:
    """As mathematicians write it.

    >>> 1 in between("(0, 1]"), between("(0, 1]").poles, str(between("[1, inf)"))
    (True, (0.0,), '[1, inf)')
    """
    low, high = map(float, text[1:-1].split(","))
    return Domain(low, high, (text[0] == "[", text[-1] == "]"), said=said)


WORDS = frozenset({"aten", "backward", "also", "numpy", "python", "modules", "takes"})
BUT_ZERO = Domain(hole=0.0, said="numbers other than 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One operation of mathematics, whoever computes it and whatever it is called."""

    name: str
    aten: tuple[str, ...] = ()  # torch's operators, of every back end; the usual one first
    backward: tuple[str, ...] = ()  # those of its derivative
    also: tuple[str, ...] = ()  # other functions and methods, torch's and SciPy's
    numpy: tuple[str, ...] = ()  # NumPy's functions, the real name first
    python: tuple[str, ...] = ()  # the operator: its node in a syntax tree, its function
    modules: tuple[str, ...] = ()  # of torch.nn, which do nothing else
    takes: tuple[str, ...] = ("input",)  # its arguments, in order
    reads: Reads = "unknown"
    reads_back: Reads = "unknown"  # the same of its derivative's operators
    domain: Domain | None = None  # where the value is finite
    of: str = "self"  # the argument that the domain is about
    slope: tuple[float, ...] = ()  # points of the domain where the slope is not finite
    range: Domain | None = None
    rounds: tuple[float, ...] = ()  # numbers that it never is and is rounded to
    formula: Callable[[float], float] | None = None  # in float64, of one number
    fails: frozenset[str] = frozenset()  # mechanisms by which it makes a non-finite value
    does: frozenset[Does] = frozenset()
    lacks: Mapping[str, str] | None = None  # why there is no rule, lint, fix or NumPy name
    otherwise: str = (
        ""  # the same of `x` by other functions: exact also where a compiler's own form is not
    )
    log_is: str = ""  # the logarithm of it at `x`, by functions that stay in the type's range
    others: tuple[Other, ...] = ()  # implementations besides the kernel and torch's decomposition

    @property
    def spellings(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.name, *self.aten, *self.also, *self.numpy, *self.python[1:])))  # fmt: skip

    @property
    def poles(self) -> tuple[float, ...]:
        """Where the value is infinite."""
        return self.domain.poles if self.domain is not None else ()

    @property
    def singular(self) -> tuple[float, ...]:
        """Where value or slope are not finite."""
        return (*self.poles, *self.slope)

    @property
    def is_risky(self) -> bool:
        """Whether ordinary arguments can make its value or slope non-finite."""
        return self.domain is not None or "grows" in self.does

    @property
    def harmless(self) -> float:
        """An argument at which nothing can happen."""
        domain = self.domain
        if domain is None:
            return 0.0
        return next(x for x in (1.0, 0.0, 0.5, 2.0) if x in domain and x not in self.slope)

    @property
    def place(self) -> int:
        """Where the argument that the domain is about stands in a call."""
        return {"self": 0, "other": 1}.get(self.of, 2)


def op(name: str, aten: str | None = None, **columns: Any) -> Op:
    """A row; words are written one after the other. Without `aten`, torch calls it so too."""
    given: dict[str, Any] = {
        "aten": name if aten is None else aten,
        "reads": "elementwise",
    } | columns
    given.setdefault("reads_back", given["reads"])
    for column in given.keys() & WORDS:
        given[column] = tuple(given[column].split())
    if "others" in given:  # of several words each
        given["others"] = tuple(given["others"].split(", "))
    for column in given.keys() & {"fails", "does"}:
        given[column] = frozenset(given[column].split())
    for column in given.keys() & {"domain", "range"}:
        given[column] = between(given[column]) if isinstance(given[column], str) else given[column]
    return Op(name=name, **given)


def each(names: str, reads: Reads = "elementwise", does: str = "") -> tuple[Op, ...]:
    """Operations of which nothing else is known."""
    return tuple(op(name, reads=reads, does=does) for name in names.split())

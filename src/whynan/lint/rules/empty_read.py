"""Uninitialised memory used as a value.

What it catches
    `torch.empty(...)`, `torch.Tensor(n)` or `np.empty(...)` used in arithmetic before anything was
    written into it.

Why it hurts
    It is whatever the memory held before: where NaNs had been freed, 196 of 200 allocations returned
    them. It works until the day the allocator hands out other memory.

Example
    total = torch.empty(10)
    total += x

Use instead
    total = torch.zeros(10)
    total += x

When it is fine
    When something fills it first: an in-place function, an assignment to a slice, `out=`, a
    constructor of a Parameter. `torch.empty(0)` holds nothing.
"""

from __future__ import annotations

import re

from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import number_of, resolve
from whynan.ops.table import TABLE

COMPUTED = ("elementwise", "row", "prefix", "reduction", "choice", "product")
WRITTEN = {"random", "overwrites", "fills", "keeps"}  # or only carried on
READS = tuple(op.name for op in TABLE if op.reads in COMPUTED and not op.does & WRITTEN)


# Where other ranks or kernels write into memory that they were handed before.
COMMUNICATES = re.compile(
    r"\b(recv|irecv|isend|all_gather|reduce_scatter|broadcast)|\.wait\(\)|\bout="
)


@pattern("N041", "empty-read", "error", ops=READS, rank=20)
def empty_read(term: Term, here: Walker) -> Match | None:
    if term.const("beta") == 0:
        return None  # `torch.baddbmm(out, a, b, beta=0)` does not read the first
    for arg in term.args[:2]:
        made = resolve(arg)
        if made.op == "empty" and (made.lib in ("torch", "numpy") or made.form == "method"):
            sizes = [number_of(a) for a in made.args]
            nothing = any(s == 0 for s in sizes) or any(a.op == "tuple" and 0 in [number_of(b) for b in a.args] for a in made.args)  # fmt: skip
            if nothing or ("device" in made.kw and str(made.kw["device"].value) == "meta"):
                continue
        elif made.op == "Tensor" and made.args and all(isinstance(number_of(a), int) for a in made.args):  # fmt: skip
            if any(number_of(a) == 0 for a in made.args):
                continue
        else:
            continue
        if COMMUNICATES.search(here.body):
            continue
        if arg.op == "name" and here.env.get(str(arg.value)) is not arg.binding:
            continue  # a name of the module, which other code may have filled
        return Match(
            term,
            f"reads memory that nothing was written to: `{made.op}` holds whatever was there before",
            "torch.zeros(...), or fill it first",
        )
    return None

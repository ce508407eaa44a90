"""Adam on a model in float16.

What it catches
    `Adam` or `AdamW` with an eps below 1e-4 over the parameters of a model that was turned into
    float16 by `.half()` or `.to(torch.float16)`.

Why it hurts
    The default eps of 1e-8 is 0 in float16, and the squared gradient underflows: after one step a
    weight whose gradient was 1e-3 is -inf, and one whose gradient was 0 is NaN.

Example
    model = nn.Linear(4, 2).half()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

Use instead
    model = nn.Linear(4, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

When it is fine
    With float32 weights and autocast, or float32 master weights. An eps of 1e-4 keeps it finite.
"""

from __future__ import annotations

from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import resolve


@pattern("N082", "adam-half", "error", ops=("Adam", "AdamW", "NAdam", "RAdam"), rank=10)
def adam_half(term: Term, here: Walker) -> Match | None:
    given = term.get("params")
    params = resolve(given) if given is not None else None
    if params is None or params.op != ".parameters" or not params.args:
        return None
    eps = term.const("eps")
    if (isinstance(eps, float) and eps >= 1e-4) or (eps is None and term.get("eps") is not None):
        return None
    if not _is_half(params.args[0]):
        return None
    return Match(
        term,
        f"{term.op} with eps {eps if eps is not None else 1e-8:g} on float16 weights: inf or NaN after one step",
        "keep the weights in float32 and use autocast, or eps=1e-4",
    )


def _is_half(model: Term, depth: int = 6) -> bool:
    t = resolve(model)
    if depth == 0 or not t.args:
        return False
    made_as = resolve(t.kw["dtype"]) if t.op == "module" and "dtype" in t.kw else None
    if made_as is not None and made_as.value in ("torch.float16", "torch.half"):
        return True
    if t.op == "merged":
        return any(_is_half(a, depth - 1) for a in t.args)
    if t.op in ("half", ".half"):
        return True
    if t.op in ("float", ".float", "double", ".double"):
        return False
    if t.op in ("cast", ".to"):
        words = [a.value for a in t.children if a.op == "imported"]
        if any(w in ("torch.float16", "torch.half") for w in words):
            return True
        if any(str(w).startswith(("torch.float", "torch.bfloat")) for w in words):
            return False
    return t.op in ("cast", ".to", ".cuda", "cuda", ".train", ".eval") and _is_half(
        t.args[0], depth - 1
    )

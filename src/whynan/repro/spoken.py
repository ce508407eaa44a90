"""Evaluates a call as it is written, to see whether it comes to the same as the recorded one."""

from __future__ import annotations

from typing import Any

import torch

from whynan.repro.case import Case, evaluate, name_of, ready, run
from whynan.repro.spelling import Spelling


def comes_to_the_same(case: Case, names: dict[int, str], spelling: Spelling) -> bool:
    """Bit by bit."""
    try:
        if case.kind == "raised":
            return _raises_the_same(case, names, spelling)
        expected = evaluate(case)
        found = _evaluated(case, names, spelling)
    except Exception:  # no such call
        return False
    if not isinstance(found, torch.Tensor) or found.dtype != expected.dtype:
        return False
    if found.shape != expected.shape:
        return False
    return bool(((found == expected) | ((found != found) & (expected != expected))).all())


def is_finite(case: Case, names: dict[int, str], text: str) -> bool:
    try:
        with torch.no_grad():
            value = eval(text, _known(case, names))
    except Exception:
        return False
    return isinstance(value, torch.Tensor) and bool(torch.isfinite(value).all())


def _raises_the_same(case: Case, names: dict[int, str], spelling: Spelling) -> bool:
    expected = run(case)
    try:
        _evaluated(case, names, spelling)
    except Exception as error:
        return expected is not None and name_of(error) == expected.message
    return False


def _known(case: Case, names: dict[int, str]) -> dict[str, Any]:
    tensors = {name: ready(case, i) for i, name in names.items()}
    return {"torch": torch, **tensors}


def _evaluated(case: Case, names: dict[int, str], spelling: Spelling) -> torch.Tensor:
    known = _known(case, names)
    if not case.backward:
        with torch.no_grad():
            known["result"] = eval(spelling.call, known)
            return eval(spelling.watched, known)  # type: ignore[no-any-return]  # of eval
    assert case.wanted is not None
    leaf = known[names[case.wanted]].requires_grad_()
    known["result"] = result = eval(spelling.call, known)
    whole = isinstance(result, torch.Tensor)
    if whole != (spelling.watched == "result"):
        raise ValueError("one result or several")
    back = {k: names[i] for k, i in case.incoming.items()}
    results = [result if whole else result[k] for k in back]
    torch.autograd.backward(results, [known[name] for name in back.values()])
    return leaf.grad  # type: ignore[no-any-return]  # set by torch

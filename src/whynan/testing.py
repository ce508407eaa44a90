"""`assert_finite`: an assertion that says what is wrong with which tensor."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

MOST_SHOWN = 5


def assert_finite(value: Any, name: str = "") -> None:
    """Fail when a tensor, array, module or nest of them holds a NaN or an infinity.

    assert_finite(model(x))
    assert_finite({"loss": loss, "logits": logits})

    Of a module, the parameters, their gradients and the buffers are looked at.
    """
    __tracebackhide__ = True
    from torch.utils._python_dispatch import _disable_current_modes

    from whynan.record.stats import first_nonfinite, stats_of

    bad = []
    with _disable_current_modes():  # a look is not a use: a tracer need not see it
        for path, tensor in _tensors(value):
            index = first_nonfinite(tensor)
            if index is not None:
                bad.append((path, stats_of(tensor), index, tensor.detach()[index].item()))
    if not bad:
        return
    subject = name or _argument(sys._getframe(1)) or "value"
    lines = [
        f"  {subject}{path}: {stats}; first at {list(index)}: {found}"
        for path, stats, index, found in bad[:MOST_SHOWN]
    ]
    more = [f"  and {len(bad) - MOST_SHOWN} more"] if len(bad) > MOST_SHOWN else []
    raise AssertionError("\n".join([f"{subject} is not finite", *lines, *more]))


def _tensors(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    import torch

    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, torch.nn.Module):
        for key, parameter in value.named_parameters():
            yield f"{path}.{key}", parameter
            if parameter.grad is not None:
                yield f"{path}.{key}.grad", parameter.grad
        for key, buffer in value.named_buffers():
            yield f"{path}.{key}", buffer
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _tensors(item, f"{path}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield from _tensors(item, f"{path}[{i}]")
    elif isinstance(value, (float, complex)) or hasattr(value, "__array__"):
        yield path, torch.as_tensor(value)


def _argument(caller: FrameType) -> str:
    """What stands between the parentheses of the call, as typed."""
    from whynan.record.sites import Frames, site_of

    site = site_of(Frames(caller.f_code, caller.f_lasti, None, 0, None))
    try:
        tree = ast.parse(site.expression.strip(), mode="eval").body
    except SyntaxError:
        return ""
    literals = (ast.Dict, ast.List, ast.Tuple, ast.Constant)
    if not isinstance(tree, ast.Call) or not tree.args or isinstance(tree.args[0], literals):
        return ""
    return ast.unparse(tree.args[0])

"""Compiled only: the rung, the graph, the operation and the line at which a compiler departs."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from whynan.model import Evidence
from whynan.record.compiled import Ladder
from whynan.record.unseen import unseen
from whynan.seam.patches import Patches
from whynan.seam.versions import HERE, release

pytestmark = pytest.mark.filterwarnings("ignore")
Wrong = Callable[..., Any]
aten: Any = torch.ops.aten
SMALL = torch.tensor([1e-9, 0.5, 2.0])


def backend(changes: dict[Any, Wrong]) -> Callable[..., Any]:
    """One that puts functions in the place of operations."""

    def made_up(graph: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        for node in graph.graph.nodes:
            if node.target in changes:
                node.target = changes[node.target]
        graph.recompile()
        return graph.forward

    return made_up


def climbed(function: Callable[[Tensor], Tensor], x: Tensor, by: Any) -> Evidence | None:
    """What is found of a compiled function's outputs and of the gradient of their sum."""
    torch.compiler.reset()
    ladder, patches = Ladder(), Patches()
    ladder.install(patches)
    try:
        out = torch.compile(function, backend=by)(x)
        if out.requires_grad:
            out.sum().backward()
    finally:
        patches.restore()
    return ladder.climb(unseen("loss", "loss", 0, value=math.inf, frames=None, why=""))


def exp_minus_one(x: Tensor) -> Tensor:
    return torch.exp(x) - 1


def without_small(x: Tensor) -> Tensor:
    return torch.atanh(torch.where(x.abs() < 1e-6, 0.0, x))


EXPM1 = backend({torch.expm1: exp_minus_one, aten.expm1.default: exp_minus_one})
ATANH = backend({torch.atanh: without_small, aten.atanh.default: without_small})
NAN_SIN = backend({torch.sin: lambda x: x / 0, aten.sin.default: lambda x: x / 0})
NAN_SUM = backend({torch.cumsum: lambda x, d: x.cumsum(d) * math.inf,
                   aten.cumsum.default: lambda x, d: x.cumsum(d) * math.inf})  # fmt: skip


def log_of_expm1(x: Tensor) -> Tensor:
    gain = torch.expm1(x)
    return torch.log(gain)


def over_atanh(x: Tensor) -> Tensor:
    y = torch.atanh(x / 10)
    return 1 / y


def waves(x: Tensor) -> Tensor:
    return torch.sin(x) + 1


def total(x: Tensor) -> Tensor:
    return torch.cumsum(x, 0)


@pytest.mark.parametrize(
    ("function", "by", "op", "line"),
    [
        (log_of_expm1, EXPM1, "expm1", "gain = torch.expm1(x)"),
        (over_atanh, ATANH, "atanh", "y = torch.atanh(x / 10)"),
        (waves, NAN_SIN, "sin", "return torch.sin(x) + 1"),
        (total, NAN_SUM, "cumsum", "return torch.cumsum(x, 0)"),
    ],
    ids=["expm1", "atanh", "sin", "cumsum"],
)
def test_the_operation_that_departs_is_the_origin(
    function: Any, by: Any, op: str, line: str
) -> None:
    found = climbed(function, SMALL.clone().requires_grad_(), by)
    assert found is not None
    assert found.climb is not None
    assert (found.origin.name, found.origin.phase) == (op, "forward")
    assert found.origin.site is not None
    assert found.origin.site.source == line
    assert [(r.name, bool(r.bad)) for r in found.climb.rungs] == [
        ("eager", False), ("aot_eager", False), ("aot_eager_decomp_partition", False), ("made_up", True),
    ]  # fmt: skip
    assert found.climb.departs


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.log(x - x),
        lambda x: 1 / (x - x),
        lambda x: torch.exp(x + 200),
        lambda x: torch.sqrt(x - x),  # in its gradient
        lambda x: torch.acosh(x),
    ],
    ids=["log", "division", "overflow", "sqrt at 0", "domain"],
)
def test_what_eager_mode_has_too_is_not_the_compilers(function: Any) -> None:
    assert climbed(function, SMALL.clone().requires_grad_(), "aot_eager") is None


def test_a_graph_that_stays_finite_says_nothing() -> None:
    assert climbed(waves, SMALL, "aot_eager_decomp_partition") is None


def test_chance_is_not_taken_for_the_compilers_fault() -> None:
    def function(x: Tensor) -> Tensor:
        return 1 / torch.nn.functional.dropout(x, 0.7, training=True)

    assert climbed(function, torch.ones(4), "aot_eager") is None


def test_rounding_is_not_called_a_fault() -> None:
    """A backend that computes in float64: the difference is there, but no operation is wrong."""

    def wide(graph: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            found = graph(*(a.double() if isinstance(a, Tensor) else a for a in args))
            return tuple(f.float() for f in found)

        return call

    def function(x: Tensor) -> Tensor:
        return 1 / ((x + 1.0) * 0.1 - x * 0.1 - 0.1)  # 0 by mathematics, rounding by float32

    x = torch.linspace(1, 9, 200)
    found = climbed(function, x, wide)
    assert found is None or (found.climb is not None and not found.climb.departs)


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch's own compiler needs one")
@pytest.mark.skipif(release("2.13") != HERE, reason="other releases compile `expm1` otherwise")
def test_torchs_own_compiler_loses_a_small_expm1() -> None:
    found = climbed(log_of_expm1, SMALL.repeat(16), "inductor")
    assert found is not None
    assert found.climb is not None
    assert found.climb.turn.name == "inductor"
    assert (found.origin.name, found.climb.compiled) == ("expm1", 0.0)
    assert found.climb.eager == pytest.approx(1e-9)
    assert found.origin.site is not None
    assert found.origin.site.source == "gain = torch.expm1(x)"


def wide(graph: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
    """A backend that computes in float64, as compilers keep half types in float32."""

    def call(*args: Any) -> Any:
        found = graph(*(a.double() if isinstance(a, Tensor) else a for a in args))
        return tuple(f.float() for f in found)

    return call


@pytest.mark.parametrize(
    ("function", "by", "is_only_eager"),
    [
        (lambda x: torch.log(torch.exp(x)), wide, True),
        (lambda x: torch.log(torch.exp(x)), "aot_eager", False),  # bad both ways
        (lambda x: torch.log(x * 2), wide, False),  # finite both ways
        (lambda x: 1 / torch.nn.functional.dropout(x, 0.7), "aot_eager", False),
    ],
    ids=["only eager", "both", "neither", "chance"],
)
def test_what_only_eager_mode_has_is_known(function: Any, by: Any, is_only_eager: bool) -> None:
    torch.compiler.reset()
    ladder, patches = Ladder(), Patches()
    ladder.install(patches)
    try:
        torch.compile(function, backend=by)(torch.full((4,), 100.0))
    finally:
        patches.restore()
    ladder.step_is_over(0)
    ladder.step_is_over(1)  # the step in question is over since
    assert ladder.is_only_eager() is is_only_eager

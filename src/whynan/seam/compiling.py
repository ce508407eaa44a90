"""The graphs that torch.compile makes of a program: seen as they run, and run by other backends."""

from __future__ import annotations

import _weakrefset
import copy
import sys
from collections.abc import Callable, Sequence
from functools import partial
from types import CodeType
from typing import Any, NamedTuple

import torch
from torch.fx import GraphModule, Node

from whynan.seam.names import read
from whynan.seam.patches import Patches
from whynan.seam.sites import is_own_file

_LOST = "A fault that only a compiled function has is not located."
_INSTEAD = "nothing: it is said that the second run, in eager mode, stayed finite"
read("torch._TorchCompileInductorWrapper.__call__", since="2.1", instead=_INSTEAD, lost=_LOST)
read("torch._TorchCompileWrapper.__call__", since="2.1", instead=_INSTEAD, lost=_LOST)
read("torch._dynamo.lookup_backend", since="2.0", instead=_INSTEAD, lost=_LOST)
read("torch._dynamo.backends.common.aot_autograd", since="2.0", instead=_INSTEAD, lost=_LOST)
read(
    "torch._functorch.partitioners.min_cut_rematerialization_partition",
    since="2.0",
    instead=_INSTEAD,
    lost=_LOST,
)
read("torch._inductor.decomposition.select_decomp_table", since="2.0", instead=_INSTEAD, lost=_LOST)
read("torch._functorch.aot_autograd.make_boxed_func", since="2.0", instead=_INSTEAD, lost=_LOST)
read(
    "torch._dynamo.trace_rules.check",
    since="2.1",
    instead="nothing: the compiler may remark on whynan's own files",
    lost="The compiler may compile whynan's own functions.",
)
read(
    "torch._dynamo.eval_frame.cached_backends",
    since="2.0",
    instead="what the program compiles while it is watched",
    lost="Functions that were compiled before a block is watched are not known.",
)

Function = Callable[..., Any]
Backend = Callable[[GraphModule, Sequence[Any]], Function]
# (graph as it was taken down, the program's backend, its name, what it was compiled to)
Compiled = Callable[[GraphModule, Backend, str, Function], Function]


def leave_own_alone(patches: Patches) -> None:
    """The compiler follows what a compiled function calls: not into whynan's own frames. A wrapper that it
    meets while it takes down the program's code is taken down with it, or the graph would break there."""
    rules = sys.modules.get("torch._dynamo.trace_rules")
    if rules is not None and hasattr(rules, "check") and not hasattr(rules.check, "leaves_own"):
        patches.wrap(rules, "check", _wrap_check)


def _is_left_alone(filename: str) -> bool:
    """Torch leaves `weakref` alone, but not the file with its sets, which whynan asks."""
    return filename == _weakrefset.__file__ or is_own_file(filename)


def _wrap_check(original: Function) -> Function:
    def check(obj: Any, is_inlined_call: bool = False, *args: Any, **named: Any) -> bool:
        code = obj if isinstance(obj, CodeType) else getattr(obj, "__code__", None)
        if not is_inlined_call and code is not None and _is_left_alone(code.co_filename):
            return True
        return bool(original(obj, is_inlined_call, *args, **named))

    check.leaves_own = True  # type: ignore[attr-defined]  # the mark of a second wrapping
    return check


def has_compiled() -> bool:
    """Whether something was compiled so far; torch notes a backend for each."""
    frames = sys.modules.get("torch._dynamo.eval_frame")
    return any(map(callable, getattr(frames, "cached_backends", {}).values()))


def observe(patches: Patches, compiled: Compiled) -> None:
    """`compiled` hears of every graph and says what is called in its place."""
    owners: Any = torch
    for name in ("_TorchCompileInductorWrapper", "_TorchCompileWrapper"):
        owner = getattr(owners, name, None)
        if owner is not None:
            patches.wrap(owner, "__call__", partial(_wrap, compiled))


def _wrap(compiled: Compiled, original: Function) -> Function:
    def compile_graph(backend: Any, graph: GraphModule, inputs: Any, **named: Any) -> Function:
        kept = copy.deepcopy(graph)  # a backend may change the graph
        function = original(backend, graph, inputs, **named)
        name = str(getattr(backend, "compiler_name", "") or "a custom backend")
        return compiled(kept, partial(_by, original, backend), name, function)

    return compile_graph


def _by(original: Function, backend: Any, graph: GraphModule, inputs: Sequence[Any]) -> Function:
    found: Function = original(backend, copy.deepcopy(graph), list(inputs))
    return found


def backend_of(name: str) -> Backend:
    """One of torch's own; `eager` is the graph itself, operation after operation."""
    if name == "eager":
        return lambda graph, inputs: graph
    from torch._dynamo import lookup_backend

    found: Any = lookup_backend(name)
    return lambda graph, inputs: found(copy.deepcopy(graph), list(inputs))


class Ran(NamedTuple):
    """A graph of elementary operations, with what it was given."""

    is_backward: bool
    graph: GraphModule
    inputs: list[Any]


def taken_apart(taken: list[Ran], *, decomposed: bool) -> Backend:
    """A backend that puts the graphs of the forward and of the backward pass down as they run."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.aot_autograd import make_boxed_func  # type: ignore[attr-defined]  # torch

    def compiler(is_backward: bool, graph: GraphModule, inputs: Any) -> Function:
        def run(*given: Any) -> Any:
            held = [g.detach().clone() if isinstance(g, torch.Tensor) else g for g in given]
            taken.append(Ran(is_backward, graph, held))
            with torch.no_grad():
                return graph(*(g.clone() if isinstance(g, torch.Tensor) else g for g in held))

        boxed: Function = make_boxed_func(run)
        return boxed

    options: dict[str, Any] = {}
    if decomposed:  # and with what backward computes once more, as the compiler does it
        from torch._functorch.partitioners import min_cut_rematerialization_partition
        from torch._inductor.decomposition import select_decomp_table

        options["decompositions"] = select_decomp_table()
        options["partition_fn"] = min_cut_rematerialization_partition
    forward, backward = partial(compiler, False), partial(compiler, True)
    made: Any = aot_autograd(fw_compiler=forward, bw_compiler=backward, **options)
    return lambda graph, inputs: made(copy.deepcopy(graph), list(inputs))


def with_every_value(graph: GraphModule) -> tuple[GraphModule, list[Node]]:
    """The graph that returns the result of each of its operations, and these operations."""
    whole = copy.deepcopy(graph)
    nodes = [n for n in whole.graph.nodes if _is_computed(n)]
    output = next(n for n in whole.graph.nodes if n.op == "output")
    output.args = (tuple(nodes),)
    whole.graph.lint()
    whole.recompile()
    return whole, nodes


def _is_computed(node: Node) -> bool:
    value = node.meta.get("val")
    return (
        node.op == "call_function"
        and isinstance(value, torch.Tensor)
        and value.dtype.is_floating_point
    )


def where_made(node: Node) -> str:
    """The traceback of the program's own line, as text."""
    return str(node.meta.get("stack_trace") or "")

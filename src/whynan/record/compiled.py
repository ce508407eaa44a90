"""Compiled only: the calls of compiled graphs in a step, and the ladder from eager mode up to them.

When a step goes bad that stays finite in eager mode, each graph of the step is run again from the
inputs it was given, by one backend of torch.compile after the other: the first one that is not
finite where eager mode is has the fault.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from whynan.model import Climb, Evidence, OpRecord, Rung
from whynan.ops.table import that
from whynan.record.graph_nodes import Located, locate
from whynan.seam.compiling import Backend, Function, backend_of, observe, taken_apart
from whynan.seam.patches import Patches
from whynan.seam.tensors import tensors_in

RUNGS = ("eager", "aot_eager", "aot_eager_decomp_partition")
DECOMPOSED = RUNGS[-1]
MAX_CALLS = 256  # of one step that are held
MAX_BYTES = 1 << 30  # of their inputs; beyond, the tensors themselves are held, no copies
SEEDS = (0, 1, 2)  # where a graph draws random numbers, it has to be so whatever it draws
DRAWS = that("random")
Results = list[Tensor | None]


@dataclass(eq=False)
class Taken:
    """One call of a compiled graph."""

    graph: GraphModule
    backend: Backend
    name: str
    inputs: list[Any]
    autocast: dict[str, torch.dtype]
    incoming: dict[int, Tensor] = field(default_factory=dict)  # gradients, by the output
    is_bad: bool = False  # an output

    @property
    def exchanges(self) -> bool:
        """Between ranks: a graph of that kind cannot be run by one of them."""
        named = (f"{_home(n.target)} {n.target}" for n in self.graph.graph.nodes)
        return any("c10d" in name or "torch.distributed" in name for name in named)

    @property
    def seeds(self) -> Sequence[int]:
        draws = any(word in str(node.target) for node in self.graph.graph.nodes for word in DRAWS)
        return SEEDS if draws else SEEDS[:1]


class Ladder:
    """Takes down the calls of a step; `climb` explains it. `compared` is the step in question."""

    def __init__(self, compared: int = 0) -> None:
        self._compared = compared
        self._kept: list[Taken] = []  # of that one, if it went well
        self._calls: list[Taken] = []
        self._bytes = 0

    def install(self, patches: Patches) -> None:
        observe(patches, self._compiled)

    def step_is_over(self, step: int) -> None:
        if step == self._compared:
            self._kept = [*self._calls]
        self._calls.clear()
        self._bytes = 0

    def _compiled(
        self, graph: GraphModule, backend: Backend, name: str, function: Function
    ) -> Function:
        def call(*inputs: Any) -> Any:
            if len(self._calls) >= MAX_CALLS:
                return function(*inputs)
            taken = Taken(graph, backend, name, self._held(inputs), _autocast())
            self._calls.append(taken)
            out = function(*inputs)
            for k, value in enumerate(_results(out)):
                if value is not None and value.is_floating_point():
                    taken.is_bad |= not bool(value.detach().isfinite().all())
                    if value.requires_grad:
                        value.register_hook(_keeper(taken, k))  # type: ignore[no-untyped-call]  # torch
            return out

        return call

    def _held(self, inputs: Sequence[Any]) -> list[Any]:
        """Graphs write to their inputs, and so does the program."""
        tensors = [i for i in inputs if isinstance(i, Tensor)]
        self._bytes += sum(t.numel() * t.element_size() for t in tensors)
        return list(inputs) if self._bytes > MAX_BYTES else list(map(_copy, inputs))

    def climb(self, evidence: Evidence) -> Evidence | None:
        """The same harm with its origin, if a compiled graph is bad where eager mode is not."""
        forward = [taken for taken in self._calls if taken.is_bad]
        backward = [taken for taken in reversed(self._calls) if taken.incoming]
        for taken in (t for t in (*forward, *backward) if not t.exchanges):
            try:
                found = self._climbed(taken, evidence)
            except Exception:  # a graph that cannot be run by itself says nothing
                found = None
            if found is not None:
                return found
        return None

    def is_only_eager(self) -> bool:
        """Whether a graph of the step is finite compiled, and not in eager mode, from the same inputs."""
        for taken in self._kept or self._calls:
            with contextlib.suppress(
                Exception
            ):  # a graph that cannot be run by itself says nothing
                if _is_only_eager(taken):
                    return True
        return False

    def _climbed(self, taken: Taken, evidence: Evidence) -> Evidence | None:
        rungs = _rungs(taken)
        if rungs is None:
            return None
        climb = Climb(
            rungs=rungs,
            graph=self._calls.index(taken),
            graphs=len(self._calls),
            operations=0,
        )
        with contextlib.suppress(Exception):  # then the graph is named, but no line
            located = self._located(taken, climb)
            if located is not None:
                return _explained(evidence, climb, located)
        origin = replace(evidence.origin, op=f"compiled.{taken.name}")
        return replace(
            evidence, origin=origin, origin_kind="compiled", climb=climb, incomplete=None
        )

    def _located(self, taken: Taken, climb: Climb) -> Located | None:
        """At which operation: only of what is made after the graphs were taken apart."""
        turn = climb.turn.name
        if turn in RUNGS[:2]:
            return None
        backend = backend_of(turn) if turn in RUNGS else taken.backend
        ran: list[Any] = []
        apart = taken_apart(ran, decomposed=turn != DECOMPOSED)
        _run(apart, taken, SEEDS[0])
        for each in ran:
            located = locate(each, backend)
            if located is not None:
                return located
        return None


def _explained(evidence: Evidence, climb: Climb, located: Located) -> Evidence:
    step = evidence.step
    climb = replace(
        climb,
        operations=located.operations,
        departs=located.departs,
        compiled=located.compiled,
        eager=located.eager,
    )
    path: tuple[OpRecord, ...] = ()
    if located.bad is not None:
        path = (replace(located.bad, step=step, index=1),)
    return replace(
        evidence,
        origin=replace(located.origin, step=step, index=0),
        origin_kind="compiled",
        path=path,
        climb=climb,
        incomplete=None,
    )


def _rungs(taken: Taken) -> tuple[Rung, ...] | None:
    """None: not bad by its own backend, or bad in eager mode, too."""
    eager = [_run(backend_of("eager"), taken, seed) for seed in taken.seeds]
    if _count(_run(taken.backend, taken, SEEDS[0]), eager[0]) == 0:
        return None
    names = RUNGS[: RUNGS.index(taken.name)] if taken.name in RUNGS else RUNGS
    backends = {name: backend_of(name) for name in names} | {taken.name: taken.backend}
    found = []
    for name, backend in backends.items():
        runs = [_run(backend, taken, seed) for seed in taken.seeds]
        bad = [_count(run, plain) for run, plain in zip(runs, eager, strict=True)]
        found.append(Rung(name=name, bad=min(bad)))
        if min(bad):
            break
    return tuple(found) if found[-1].bad else None


def _home(target: Any) -> str:
    return str(getattr(target, "__module__", ""))


def _is_only_eager(taken: Taken) -> bool:
    for seed in taken.seeds:
        eager, own = (_run(b, taken, seed) for b in (backend_of("eager"), taken.backend))
        if _count(own, eager) or not _count(eager, own):
            return False
    return not taken.is_bad


def _count(results: Results, eager: Results) -> int:
    """Values that are not finite, though eager mode's are."""
    pairs = [(a, b) for a, b in zip(results, eager, strict=True) if a is not None and b is not None]
    return sum(int((~a.isfinite() & b.isfinite()).sum()) for a, b in pairs)


def _run(backend: Backend, taken: Taken, seed: int) -> Results:
    """Outputs and, for the gradients that came back, the gradients of the inputs."""
    inputs = list(map(_copy, taken.inputs))
    torch.manual_seed(seed)
    with torch.enable_grad(), _autocast_of(taken):
        out = _results(backend(taken.graph, inputs)(*inputs))
        asked = [(o, taken.incoming[k]) for k, o in enumerate(out) if _is_asked(taken, k, o)]
        wanted = [i for i in inputs if isinstance(i, Tensor) and i.requires_grad]
        grads: Sequence[Tensor | None] = ()
        if asked and wanted:
            ends, arriving = [o for o, _ in asked if o is not None], [g for _, g in asked]
            grads = torch.autograd.grad(ends, wanted, arriving, allow_unused=True)
    found = [*out, *grads]
    return [_floating(f) for f in found]


def _is_asked(taken: Taken, k: int, out: Tensor | None) -> bool:
    return out is not None and out.requires_grad and k in taken.incoming


def _floating(value: Tensor | None) -> Tensor | None:
    return value.detach() if value is not None and value.is_floating_point() else None


def _results(out: Any) -> list[Tensor | None]:
    """Of a graph, which returns a tuple; anything else is a number or nothing."""
    items = out if isinstance(out, (list, tuple)) else tensors_in(out)
    return [item if isinstance(item, Tensor) else None for item in items]


def _copy(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    return value.detach().clone().requires_grad_(value.requires_grad)


def _keeper(taken: Taken, k: int) -> Callable[[Tensor], None]:
    def keep(gradient: Tensor) -> None:
        taken.incoming[k] = gradient.detach().clone()

    return keep


def _autocast() -> dict[str, torch.dtype]:
    """Of each kind of device on which it is on, the type."""
    kinds = ("cpu", "cuda")
    return {k: torch.get_autocast_dtype(k) for k in kinds if torch.is_autocast_enabled(k)}


@contextlib.contextmanager
def _autocast_of(taken: Taken) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for kind, dtype in taken.autocast.items():
            stack.enter_context(torch.autocast(kind, dtype=dtype))
        yield

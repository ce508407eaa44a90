"""One operation to be repeated, with its tensors in their places, and what comes of it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import torch

from whynan.model import BadKind, Material
from whynan.record.schema import info_for, info_of
from whynan.seam.members import schema_of
from whynan.seam.packing import lively, unpack

Wide = Literal["finite", "bad", "unknown"]
DIGITS = re.compile(r"\d+")
PREFIX = re.compile(r"^[\w.]+: ")


class Slot(NamedTuple):
    """In the place of a tensor."""

    number: int


class Result(NamedTuple):
    """In the place of what an earlier call returned."""

    call: int
    output: int


@dataclass
class Step:
    """One call."""

    op: str
    args: list[Any]
    kwargs: dict[str, Any]

    @property
    def function(self) -> Any:
        """The operator; AttributeError where this process has none of that name."""
        namespace, name, overload = self.op.split(".")
        return getattr(getattr(getattr(torch.ops, namespace), name), overload)

    @property
    def written(self) -> list[int]:
        """Its arguments that it writes to."""
        info = info_of(self.function)
        if info.quiet is not None:
            info = info_for(info, self.args)
        return [i for i in info.write_args if i < len(self.args)]

    @property
    def is_in_place(self) -> bool:
        return self.op.split(".")[1].endswith("_")

    def functional(self) -> Step:
        """The same without writing to its operands, where there is such an operator."""
        namespace, name, overload = self.op.split(".")
        found = replace(self, op=f"{namespace}.{name.rstrip('_')}.{overload}")
        return found if getattr(found, "function", None) is not None else self

    def complete(self, *, raises: bool) -> Step:
        """As it can be called without the tensor of `out=`, and raising what it only noted."""
        namespace, name, overload = self.op.split(".")
        kwargs = self.kwargs
        names = [a.name for a in schema_of(self.function).arguments]
        if raises and "check_errors" in names[len(self.args) :]:
            kwargs = {**kwargs, "check_errors": True}
        if overload != "out" and not overload.endswith("_out"):
            return replace(self, kwargs=kwargs)
        packet = getattr(getattr(torch.ops, namespace), name)
        wanted = [n for n in names if n != "out"]
        for other in packet.overloads():
            declared = [a.name for a in schema_of(getattr(packet, other)).arguments]
            if declared == wanted:
                return replace(self, op=f"{namespace}.{name}.{other}", kwargs=kwargs)
        return self


@dataclass
class Case:
    """What is made small. `tensors` are changed by putting others in their places."""

    steps: list[Step]
    tensors: list[torch.Tensor]
    kind: BadKind
    output: int = 0
    backward: bool = False
    incoming: dict[int, int] = field(default_factory=dict)
    wanted: int | None = None  # of a backward pass: the tensor whose gradient is bad
    message: str = ""
    device: str = "cpu"
    strides: dict[int, tuple[int, ...]] = field(default_factory=dict)  # where they matter
    settings: tuple[str, ...] = ()

    def with_tensors(self, tensors: list[torch.Tensor]) -> Case:
        return replace(self, tensors=tensors)

    @property
    def inputs(self) -> list[int]:
        """Tensors that the calls read, in order; without gradients that come back."""
        found: list[int] = []
        for step in self.steps:
            _walk([step.args, list(step.kwargs.values())], found)
        return list(dict.fromkeys(found))


class Shown(NamedTuple):
    """What a case shows when it is run."""

    kind: BadKind
    value: torch.Tensor | None
    message: str = ""

    def is_as(self, other: Shown) -> bool:
        return self.kind == other.kind and self.message == other.message


def case_of(material: Material) -> Case:
    """With tensors on the CPU and in order."""

    def stands(place: dict[str, Any]) -> Any:
        return Slot(place["tensor"]) if "tensor" in place else Result(*place["result"])

    steps = []
    for call in material.calls:
        args, kwargs = json.loads(call.arguments)
        named = {k: lively(v, stands) for k, v in kwargs.items()}
        step = Step(call.op, lively(args, stands), named)
        steps.append(step.complete(raises=material.kind == "raised"))
    return Case(
        steps=steps,
        tensors=[unpack(held) for held in material.tensors],
        kind=material.kind,
        output=material.output,
        backward=material.backward,
        incoming={int(k): v for k, v in material.incoming.items()},
        message=material.message or "",
        settings=material.settings,
    )


def run(case: Case, *, wide: bool = False) -> Shown | None:
    """What it shows; None where all is finite or the call makes no sense."""
    try:
        result = evaluate(case, wide=wide)
    except Exception as error:
        return Shown("raised", None, name_of(error)) if case.kind == "raised" else None
    kinds = kinds_in(result)
    if case.kind == "raised" or not kinds:
        return None
    return Shown(case.kind if case.kind in kinds else kinds[0], result)


def evaluate(case: Case, *, wide: bool = False) -> torch.Tensor:
    """The tensor that is to be looked at."""
    tensors = [ready(case, i, wide=wide) for i in range(len(case.tensors))]
    if not case.backward:
        with torch.no_grad():
            return _outputs(case, tensors, wide)[case.output]
    assert case.wanted is not None
    leaf = tensors[case.wanted].requires_grad_()
    results = _outputs(case, tensors, wide)
    back = gradients_for(case, results)
    torch.autograd.backward([results[k] for k in back], [tensors[i] for i in back.values()])
    if leaf.grad is None:
        raise ValueError("no gradient came back")
    return leaf.grad


def gradients_for(case: Case, results: list[torch.Tensor]) -> dict[int, int]:
    """By the number of a result, the gradient that comes back to it."""
    return {k: i for k, i in case.incoming.items() if k < len(results) and results[k].requires_grad}


def width(case: Case) -> Wide:
    """What the same comes to in float64."""
    try:
        shown = run(case, wide=True)
        if shown is None:
            evaluate(case, wide=True)  # many kernels have no float64 form
    except Exception:
        return "unknown"
    return "finite" if shown is None else "bad"


def kinds_in(value: torch.Tensor) -> list[BadKind]:
    """The kinds of non-finite numbers in it."""
    if not (value.is_floating_point() or value.is_complex()):
        return []
    real = torch.view_as_real(value) if value.is_complex() else value
    real = real.detach().double() if real.element_size() < 4 else real.detach()
    looks: list[tuple[BadKind, torch.Tensor]] = [("nan", real.isnan()), ("inf", real == torch.inf), ("-inf", real == -torch.inf)]  # fmt: skip
    return [kind for kind, where in looks if bool(where.any())]


def flat(out: Any) -> list[torch.Tensor]:
    if isinstance(out, torch.Tensor):
        return [out]
    return [t for item in out for t in flat(item)] if isinstance(out, (list, tuple)) else []


def filled(value: Any, tensors: list[torch.Tensor], results: list[list[torch.Tensor]]) -> Any:
    """Arguments with the tensors in their places."""
    if isinstance(value, Slot):
        return tensors[value.number]
    if isinstance(value, Result):
        return results[value.call][value.output]
    if isinstance(value, list):
        return [filled(item, tensors, results) for item in value]
    return value


def _outputs(case: Case, tensors: list[torch.Tensor], wide: bool) -> list[torch.Tensor]:
    results: list[list[torch.Tensor]] = []
    for step in case.steps:
        args = [_widened(filled(a, tensors, results), wide) for a in step.args]
        kwargs = {k: _widened(filled(a, tensors, results), wide) for k, a in step.kwargs.items()}
        if wide and "half_to_float" in [a.name for a in schema_of(step.function).arguments]:
            args[2] = False
        results.append(_results(step, args, kwargs))
    return results[-1]


def _results(step: Step, args: list[Any], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """As the recorder counts them: what is written to first, then what is new."""
    out = step.function(*args, **kwargs)
    written = [t for i in step.written for t in flat(args[i])]
    known = {id(t) for t in written}
    return written + [t for t in flat(out) if id(t) not in known]


def ready(case: Case, number: int, *, wide: bool = False) -> torch.Tensor:
    """A tensor of its own, where and as it is to be."""
    found: torch.Tensor = _widened(case.tensors[number], wide).to(case.device)
    stride = case.strides.get(number)
    if stride is None:
        return found.clone()
    empty: torch.Tensor = torch.empty_strided(
        found.shape, stride, dtype=found.dtype, device=found.device
    )
    return empty.copy_(found)


def _widened(value: Any, wide: bool) -> Any:
    if not wide:
        return value
    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() else value.to(torch.complex128) if value.is_complex() else value  # fmt: skip
    if isinstance(value, torch.dtype) and value.is_floating_point:
        return torch.float64
    return value


def name_of(error: Exception) -> str:
    """Which exception, without its numbers and the name of the function that says so."""
    said = PREFIX.sub("", str(error).splitlines()[0] if str(error) else "")
    return f"{type(error).__name__}: {DIGITS.sub('#', said)}"


def _walk(value: Any, found: list[int]) -> None:
    if isinstance(value, Slot):
        found.append(value.number)
    elif isinstance(value, list):
        for item in value:
            _walk(item, found)

"""Ways of doing something again: the statements that led there, with the names that they need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import CellType, CodeType, FrameType, FunctionType
from typing import Any

import torch

from whynan.seam.private import MODULE_CALL
from whynan.seam.sites import USER, kind_of_file, program_frames
from whynan.seam.tensors import bad_values, tensors_in
from whynan.source.bodies import Lead, leads_to
from whynan.source.whole_turns import WholeTurn
from whynan.watching.carried import Carried, values_of
from whynan.watching.kept import same_values
from whynan.watching.repeating import Repeating, same_outputs
from whynan.watching.told import How

LAST_STATEMENTS = (1, 3, 8)  # of a module, so many are tried
MAX_FRAMES = 8  # of the program's own, that are tried
ARRAYS = ("float32", "float64", "int64", "int32", "uint8")


@dataclass(slots=True)
class Way:
    """One way of doing it again."""

    work: Callable[[], Any]
    roots: list[Any]  # what it may change is reached from these
    code: CodeType | None = None  # of the statements, compiled anew
    made: dict[str, Any] = field(default_factory=dict)  # by name, the last time
    how: How = "body"

    @property
    def is_telling(self) -> bool:
        """Whether two different turns would differ in what they made."""
        return any(bool((v - v == 0).any()) for v in self.made.values() if v.dtype != torch.bool)

    def made_the_same(self, raised: BaseException, phase: Repeating) -> bool:
        """Whether names hold the same tensors as they did in the program's own turn."""
        trace = raised.__traceback__
        while (
            self.code is not None and trace is not None and trace.tb_frame.f_code is not self.code
        ):
            trace = trace.tb_next
        if self.code is None or trace is None:
            return self.code is None
        now = trace.tb_frame.f_locals
        return all(
            _same(now.get(name), then)
            for name, then in self.made.items()
            if name not in phase.before_update
        )


@dataclass(slots=True)
class Turn(Way):
    """A whole turn, which is over."""

    given: dict[str, Any] = field(default_factory=dict)  # what the one after it began with

    def came_to(self, names: Any) -> bool:
        then = {**self.given, **self.made}
        return type(names) is dict and all(
            same_outputs(names.get(name), value) for name, value in then.items()
        )

    def bad(self, names: dict[str, Any]) -> list[tuple[str, torch.Tensor]]:
        return [
            (n, t) for n in self.given for t in tensors_in(names[n]) if bad_values(t) is not None
        ]


def whole_turn(
    turn: WholeTurn, frame: FrameType, before: dict[str, Any], now: dict[str, Any]
) -> Turn | None:
    lead = turn.lead
    if any(name not in before for name in lead.carried):
        return None
    carried = {name: before[name] for name in lead.carried}
    before = now | carried if turn.is_this else before
    # A module's own variables are no parameters, unless the turn gives them a value.
    names = frame.f_globals
    names = names | before if frame.f_locals is names else names
    arguments = {n: v for n, v in before.items() if n in lead.parameters}
    work = _callable(lead, frame, names, values_of(frame, lead.parameters) | arguments)
    given = {n: v for n, v in now.items() if n in lead.made and n in lead.carried}
    return Turn(work, _roots(frame), lead.code, _tensors(turn.at_hand, frame), given=given)


def ways(
    frames: Iterable[tuple[FrameType, int]],
    carried: Carried,
    *,
    later: bool = False,
    most: Sequence[int] = (),
) -> Iterator[Way]:
    """`later`: the variables will have other values by then."""
    for number, (frame, lasti) in enumerate(frames):
        if number >= MAX_FRAMES:
            return
        for lead in leads_to(frame.f_code, lasti, most):
            arguments = _arguments(lead, frame, carried)
            if arguments is not None:
                names = dict(frame.f_globals) if later else frame.f_globals
                work = _callable(lead, frame, names, arguments)
                yield Way(work, _roots(frame), lead.code, _tensors(lead.made, frame))


def ways_to_error(error: BaseException, carried: Carried) -> Iterator[Way]:
    """From the innermost of the frames that it left. The outermost model was called from one of them."""
    traces, trace = [], error.__traceback__
    while trace is not None:
        traces.append(trace)
        trace = trace.tb_next
    called = next((t.tb_frame for t in traces if t.tb_frame.f_code is MODULE_CALL), None)
    for trace in reversed(traces):
        frame = trace.tb_frame
        if kind_of_file(frame.f_code.co_filename) == USER:
            yield from ways([(frame, trace.tb_lasti)], carried, most=LAST_STATEMENTS)
        elif frame is called:
            yield _called_again(frame)


def _roots(frame: FrameType | None) -> list[Any]:
    frames = program_frames(frame)
    return [root for f in frames for root in (f.f_globals, *f.f_locals.values())]


def _tensors(names: Iterable[str], frame: FrameType) -> dict[str, Any]:
    """And NumPy's arrays."""
    found = {n: frame.f_locals.get(n) for n in names}
    tensors = {n: v.detach() for n, v in found.items() if type(v) is torch.Tensor}
    return tensors | {n: v for n, v in found.items() if _is_array(v)}


def _is_array(value: Any) -> bool:
    return type(value).__module__ == "numpy" and getattr(value, "dtype", None) in ARRAYS


def _same(now: Any, then: Any) -> bool:
    """What is not there, or is something else, is not compared."""
    if type(now) is torch.Tensor and type(then) is torch.Tensor:
        return same_values(now.detach(), then)
    if not (_is_array(now) and _is_array(then)):
        return True
    same_kind = now.shape == then.shape and now.dtype == then.dtype
    return same_kind and bool(((now == then) | ((now != now) & (then != then))).all())


def _called_again(frame: FrameType) -> Way:
    names = frame.f_locals
    module, args, kwargs = names["self"], names.get("args", ()), names.get("kwargs", {})
    return Way(lambda: module(*args, **kwargs), [module, args, kwargs, *_roots(frame)], how="call")


def _arguments(lead: Lead, frame: FrameType, carried: Carried) -> Mapping[str, Any] | None:
    before, found = carried.of(lead, frame), values_of(frame, lead.parameters)
    if before is None:
        return None
    given = found | before
    for name, by in lead.counted.items():
        if type(given.get(name)) is not int:
            return None
        given[name] -= by
    return given


def _callable(
    lead: Lead, frame: FrameType, names: dict[str, Any], arguments: Mapping[str, Any]
) -> Callable[[], Any]:
    cells = tuple(CellType(frame.f_locals.get(name)) for name in lead.code.co_freevars)
    function = FunctionType(lead.code, names, lead.code.co_name, None, cells)
    missing = [name for name in lead.parameters if name not in arguments]
    given = {**arguments, **dict.fromkeys(missing)}
    return lambda: function(**given)

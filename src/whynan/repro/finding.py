"""Of what was recorded, the way to repeat the failure that shows it, in this process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from whynan.model import Held, Material
from whynan.repro.case import Case, case_of, evaluate, run


def find(materials: tuple[Material, ...]) -> tuple[Case, Material] | str:
    """The first that fails as it did, or in some other way at least; else why there is none."""
    whys: list[str] = []
    for material in materials:
        for exactly in (True, False):
            try:
                found = _first(material, exactly)
            except AttributeError:
                whys.append(f"`{material.calls[-1].op}` is not an operation of torch's own")
                break
            if found is not None:
                return found, material
            whys.append("run again by itself, with the operands that it had, it does not fail")
    return whys[0] if whys else "nothing was kept of it"


def _first(material: Material, exactly: bool) -> Case | None:
    for case in _ways(material):
        shown = run(case)
        if shown is not None and (shown.kind == material.kind or not exactly):
            return replace(case, kind=shown.kind)
    return None


def _ways(material: Material) -> Iterator[Case]:
    """On the CPU and in order, where that will do; else as it was."""
    plain = case_of(material)
    devices = ["cpu", *{held.device for held in material.tensors if held.device != "cpu"}]
    strides = {i: held.stride for i, held in enumerate(material.tensors) if _is_odd(held)}
    for device in devices:
        for settings in dict.fromkeys(((), material.settings)):
            for layout in ({}, strides) if strides else ({},):
                case = replace(plain, device=device, settings=settings, strides=layout)
                if settings:
                    for line in settings:
                        exec(line, {"torch": torch})
                yield from _forms(case, material)


def _forms(case: Case, material: Material) -> Iterator[Case]:
    """Without writing to operands, where that will do."""
    functional = [step.functional() if step.is_in_place else step for step in case.steps]
    cases = [replace(case, steps=functional)]
    if functional != case.steps and not case.backward:
        cases.append(case)
    for one in cases:
        if one.backward:
            yield from _gradients(one, material)
        else:
            yield one


def _gradients(case: Case, material: Material) -> Iterator[Case]:
    """By the operand whose gradient is asked for; the one of the bad gradient's shape first."""
    inputs = [i for i in case.inputs if case.tensors[i].is_floating_point() or case.tensors[i].is_complex()]  # fmt: skip
    inputs.sort(key=lambda i: tuple(case.tensors[i].shape) != material.reached)
    for wanted in inputs:
        yield from _with_incoming(replace(case, wanted=wanted))


def _with_incoming(case: Case) -> Iterator[Case]:
    if case.incoming:
        yield case
        return
    # Which gradient came back is not known: that of a sum, or none where it was dropped.
    try:
        probe = evaluate(replace(case, backward=False))
    except Exception:
        return
    for value in (1.0, 0.0):
        gradient = torch.full_like(probe, value)
        number = len(case.tensors)
        yield replace(case, tensors=[*case.tensors, gradient], incoming={0: number})


def _is_odd(held: Held) -> bool:
    expected, size = [], 1
    for n in reversed(held.shape):
        expected.append(size)
        size *= max(1, n)
    return bool(held.stride) and held.stride != tuple(expected[::-1]) and 0 not in held.stride

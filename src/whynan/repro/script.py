"""The text of `repro.py`, and of the tensors that it reads."""

from __future__ import annotations

import json
import struct
import textwrap
from dataclasses import dataclass
from typing import Any

import torch

from whynan.repro.case import Case, evaluate
from whynan.repro.spelling import Spelling, names_of_tensors, operator, spellings
from whynan.repro.spoken import comes_to_the_same, is_finite
from whynan.repro.values import FEW, Values, shortest
from whynan.seam.packing import named

TENSORS = "tensors.safetensors"
KINDS = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "C64": torch.complex64,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
    "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
COMPLAINT = "not finite"
# The format is a length, a header in JSON and the bytes: no library is needed to read it.
LOAD = f"""\
def load(name):  # from {TENSORS}, beside this file
    raw = open(pathlib.Path(__file__).with_name("{TENSORS}"), "rb").read()
    size = 8 + int.from_bytes(raw[:8], "little")
    held = json.loads(raw[8:size])[name]
    start, end = (size + at for at in held["data_offsets"])
    dtype = {{NAMES}}[held["dtype"]]
    return torch.frombuffer(bytearray(raw[start:end]), dtype=dtype).reshape(held["shape"])
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The files of a repro, and the words that others use of it."""

    text: str
    tensors: dict[str, torch.Tensor]  # those that are not in the text
    call: str  # "torch.log(x)"
    names: dict[int, str]

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())


def compose(values: Values, *, headline: str) -> Script:
    """Write it down."""
    case = values.case
    names = names_of_tensors(case)
    for k, number in case.incoming.items():
        names.setdefault(number, "gradient" if len(case.incoming) == 1 else f"gradient{k}")
    spelled = [_spelled(case, names, at) for at in range(len(case.steps))]
    held: dict[str, torch.Tensor] = {}
    lines = [f"{names[i]} = {_value(values, i, names[i], held)}" for i in case.inputs]
    before = lines + [_earlier(at, s) for at, s in enumerate(spelled[:-1])]
    if case.backward:
        body = _backward(values, names, spelled[-1], held)
    else:
        body = _forward(case, spelled[-1], in_float64(case, names, spelled[-1]))
    text = _head(headline, case, held) + "\n".join(before + body) + "\n"
    return Script(text=text, tensors=held, call=spelled[-1].call, names=names)


def _earlier(at: int, spelled: Spelling) -> str:
    return f"step{at + 1} = {spelled.call if '[' in spelled.watched else f'({spelled.call},)'}"


def _head(headline: str, case: Case, held: dict[str, torch.Tensor]) -> str:
    said = textwrap.fill(headline, 96, initial_indent="# ", subsequent_indent="# ")
    imports = ["import torch"]
    load = ""
    if held:
        imports = ["import json", "import pathlib", "", "import torch"]
        kinds = {code for code, dtype in KINDS.items() for t in held.values() if t.dtype is dtype}
        table = ", ".join(f'"{code}": torch.{named(KINDS[code])}' for code in sorted(kinds))
        load = "\n" + LOAD.replace("{NAMES}", f"{{{table}}}") + "\n"
    settings = "".join(f"{line}\n" for line in case.settings)
    return "\n".join([said, *imports, ""]) + load + "\n" + settings


def _forward(case: Case, spelled: Spelling, wide: str) -> list[str]:
    if case.kind == "raised":
        return [f"{spelled.call}  # raises"]
    lines = [f"result = {spelled.call}"] if spelled.watched.startswith("result") else [spelled.call]
    if spelled.watched.startswith("result["):
        lines[0] = f"result = ({spelled.call}){spelled.watched.removeprefix('result')}"
        if _is_one_call(spelled.call):
            lines[0] = f"result = {spelled.call}{spelled.watched.removeprefix('result')}"
    watched = "result" if spelled.watched.startswith("result") else spelled.watched
    lines += [f'print("result:", {watched})']
    if wide:
        lines += [f'print("in float64:", {wide})']
    return [*lines, f'assert {_finite(case, watched)}, "the result is {COMPLAINT}"']


def _backward(values: Values, names: dict[int, str], spelled: Spelling, held: dict[str, Any]) -> list[str]:  # fmt: skip
    case = values.case
    assert case.wanted is not None
    leaf = names[case.wanted]
    lines = [f"{leaf}.requires_grad_()", f"result = {spelled.call}"]
    grads = {k: _value(values, i, names[i], held) for k, i in case.incoming.items()}
    if list(grads) == [0] and spelled.watched == "result":
        scalar = case.tensors[case.incoming[0]].dim() == 0
        is_one = scalar and grads[0] in ("torch.tensor(1.0)", "torch.ones(())")
        lines += [f"result.backward({'' if is_one else grads[0]})"]
    else:
        results = ", ".join(f"result[{k}]" for k in grads)
        lines += [f"torch.autograd.backward([{results}], [{', '.join(grads.values())}])"]
    lines += [
        f'print("forward:", {"result.detach()" if spelled.watched == "result" else "result"})'
    ]
    lines += [f'print("gradient:", {leaf}.grad)']
    return [*lines, f'assert {_finite(case, f"{leaf}.grad")}, "the gradient is {COMPLAINT}"']


def _finite(case: Case, watched: str) -> str:
    kind = evaluate(case)
    return f"{watched}{'.float()' if kind.element_size() == 1 else ''}.isfinite().all()"


def _is_one_call(text: str) -> bool:
    return text.endswith(")") and "(" in text and not text.startswith("(")


def _value(values: Values, number: int, name: str, held: dict[str, torch.Tensor]) -> str:
    """A tensor as an expression."""
    case, tensor = values.case, values.case.tensors[number]
    text = values.recipes[number].text if number in values.recipes else ""
    if not text and tensor.numel() <= FEW:
        text = _listed(tensor)
    if not text:
        held[name] = tensor
        text = f'load("{name}")'
    stride = case.strides.get(number)
    if stride is not None:
        empty = f"torch.empty_strided({tuple(tensor.shape)}, {stride}, dtype=torch.{named(tensor.dtype)})"
        text = f"{empty}.copy_({text})"
    return text if case.device == "cpu" else f"({text}).to({case.device!r})"


def _listed(tensor: torch.Tensor) -> str:
    dtype = named(tensor.dtype)
    usual = dtype in ("float32", "bool") or (dtype == "int64" and tensor.numel())
    return f"torch.tensor({_nested(tensor)}{'' if usual else f', dtype=torch.{dtype}'})"


def _nested(tensor: torch.Tensor) -> str:
    if tensor.dim():
        return f"[{', '.join(_nested(part) for part in tensor)}]"
    value = tensor.item()
    if tensor.is_floating_point():
        return shortest(float(value), tensor.dtype)
    return repr(value)


def _spelled(case: Case, names: dict[int, str], at: int) -> Spelling:
    """The first way of writing the call that comes to the same."""
    step = case.steps[at]
    if len(case.steps) == 1:
        for spelling in spellings(step, names, case.output):
            if comes_to_the_same(case, names, spelling):
                return spelling
    return operator(step, names, case.output)


def in_float64(case: Case, names: dict[int, str], spelled: Spelling) -> str:
    """The same call of wider operands, where it is written like that and is finite; else empty."""
    if case.backward or len(case.steps) > 1 or case.kind == "raised":
        return ""
    wider = {
        i: f"{n}.double()" if case.tensors[i].is_floating_point() else n for i, n in names.items()
    }
    ways = zip(
        spellings(case.steps[0], names, case.output),
        spellings(case.steps[0], wider, case.output),
        strict=True,
    )
    wide = next((w for plain, w in ways if plain == spelled), None)
    if wide is None or not wide.watched.startswith("result"):
        return ""
    text = f"{wide.call}{wide.watched.removeprefix('result')}"
    return text if is_finite(case, names, text) else ""


def packed(tensors: dict[str, torch.Tensor]) -> bytes:
    """As safetensors."""
    header: dict[str, Any] = {}
    data = b""
    for name, tensor in tensors.items():
        code = next(code for code, dtype in KINDS.items() if dtype is tensor.dtype)
        raw = bytes(tensor.contiguous().flatten().view(torch.uint8).tolist())
        header[name] = {
            "dtype": code,
            "shape": list(tensor.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data

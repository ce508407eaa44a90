"""Every other way in which a recorded operation can be computed, in the order of trust."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from whynan.ops.op import Op
from whynan.ops.table import LISTS, kernel
from whynan.record import written_out
from whynan.record.recompute import Call, run_again, written_by
from whynan.record.records import Record, flat
from whynan.record.schema import REPEATABLE
from whynan.record.written_out import Results
from whynan.seam.kernels import composite_of, decompositions, defaults_of
from whynan.seam.members import schema_of

EXACTLY = ("product", "sample", "heads")  # what these settings are about
_cuda: Any = torch.backends.cuda.matmul
SETTINGS: dict[str, tuple[Any, str, Any]] = {
    'with torch.set_float32_matmul_precision("highest")': (torch, "float32_matmul_precision", "highest"),
    "with torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False": (_cuda, "allow_fp16_reduced_precision_reduction", False),
    "with torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False": (_cuda, "allow_bf16_reduced_precision_reduction", False),
}  # fmt: skip


class Way(NamedTuple):
    """One implementation; `own`: another kernel of the same operator, which it therefore calls."""

    how: str
    run: Callable[[Call], Results]
    own: bool = False
    is_setting: bool = False  # the same kernel, computing as exactly as it can


def ways(record: Record, device: torch.device) -> Iterator[Way]:
    """Other implementations; an operator that is not torch's own is never called itself."""
    info = record.info
    row, _ = kernel(info.base)
    is_torchs = info.namespace in REPEATABLE
    if is_torchs:
        yield from _written_out(record, row)
        if info.base.startswith(LISTS):
            yield Way("one tensor at a time", lambda call: _one_by_one(record, call))
    elif (composite := composite_of(info.func)) is not None:
        yield Way("its composite kernel", lambda call: _called(composite, call))
    decomposed = decompositions.get(info.func)
    if decomposed is not None:
        yield Way("its decomposition", lambda call: _taken_apart(record, decomposed, call))
    if is_torchs and row.numpy and row.reads == "elementwise" and info.base in row.aten:
        yield Way("NumPy", lambda call: _numpy(row.numpy[0], call))
    if is_torchs:
        yield from _switched(record, row)
        if row.reads in EXACTLY:
            yield from _exactly(record)
    if is_torchs and device.type not in ("cpu", "meta"):
        yield Way("on the CPU", lambda call: _on_cpu(record, call), own=True)


def _written_out(record: Record, row: Op) -> Iterator[Way]:
    def by_name(run: Callable[[Any], Results]) -> Callable[[Call], Results]:
        return lambda call: run(named(record, call))

    base = record.info.base
    if "math" in row.others:
        yield Way("attention's math kernel", by_name(written_out.attention))
    if "windows" in row.others:
        yield Way("windows times weights, written out", by_name(written_out.convolution))
    if "products" in row.others and base in row.aten:
        yield Way("products and sums, written out", by_name(written_out.product))
    if "one by one" in row.others:
        yield Way("torch's plain optimizer", by_name(lambda g: written_out.update(base, g)))


def _switched(record: Record, row: Op) -> Iterator[Way]:
    """The same operator with a library of kernels switched off, and on again after it."""
    backends: Any = torch.backends
    switches = {"without oneDNN": backends.mkldnn, "without cuDNN": backends.cudnn}
    for other, library in switches.items():
        if other in row.others and library.is_available():

            def run(call: Call, library: Any = library) -> Results:
                with library.flags(enabled=False):
                    return _same(record, call)

            yield Way(other, run, own=True)


def _exactly(record: Record) -> Iterator[Way]:
    """The same kernel without a setting that trades digits, or range, for speed."""
    for how, (owner, name, exact) in SETTINGS.items():
        ask = getattr(owner, f"get_{name}", None) or (lambda o=owner, n=name: getattr(o, n))
        now = ask()
        if now == exact:
            continue
        turn = getattr(owner, f"set_{name}", None) or (lambda v, o=owner, n=name: setattr(o, n, v))

        def run(call: Call, turn: Any = turn, exact: Any = exact, now: Any = now) -> Results:
            turn(exact)
            try:
                return _same(record, call)
            finally:
                turn(now)

        yield Way(how, run, own=True, is_setting=True)


def named(record: Record, call: Call) -> dict[str, Any]:
    names = record.info.arg_names[: len(call.args)]
    return defaults_of(record.info.func) | dict(zip(names, call.args, strict=True)) | call.kwargs


def _called(function: Callable[..., Any], call: Call) -> Results:
    return list(flat(function(*call.args, **call.kwargs)))


def _taken_apart(record: Record, function: Callable[..., Any], call: Call) -> Results:
    """What it writes to its arguments is left to the kernel itself: a form without it may write nothing."""
    written = written_by(record, call)
    found = _called(function, call) or []
    return [*[None] * len(written), *[t for t in found if all(t is not w for w in written)]]


def _same(record: Record, call: Call) -> Results:
    found = run_again(record, call)
    return None if found is None else list(found)


def _one_by_one(record: Record, call: Call) -> Results:
    """A list operation as that of one tensor, called for each."""
    base = record.info.base.removeprefix(LISTS)
    single = getattr(torch.ops.aten, base, None)
    count = len(call.args[0])

    def of(arg: Any, i: int) -> Any:
        return arg[i] if isinstance(arg, (list, tuple)) and len(arg) == count else arg

    if single is None:
        return None
    declared = schema_of(single.default).arguments
    places = sum(not argument.kwarg_only for argument in declared)
    names = [argument.name for argument in declared[places:]]  # which a list has in order

    def done(i: int) -> Any:
        args = [of(a, i) for a in call.args]
        kwargs = {n: of(a, i) for n, a in call.kwargs.items()}
        return single(*args[:places], **dict(zip(names, args[places:], strict=False)) | kwargs)

    return list(flat([done(i) for i in range(count)]))


def _numpy(name: str, call: Call) -> Results:
    """On the CPU, where all operands are of one type, that of the result: NumPy promotes by other
    rules."""
    numpy: Any = sys.modules.get("numpy")
    function = getattr(numpy, name, None)
    tensors = [a for a in call.args if isinstance(a, Tensor)]
    if function is None or call.kwargs or not 0 < len(call.args) <= 2:
        return None
    if any(t.device.type != "cpu" or t.dtype != tensors[0].dtype for t in tensors):
        return None
    if not tensors or not tensors[0].is_floating_point():
        return None
    with numpy.errstate(all="ignore"):
        given = [a.numpy() if isinstance(a, Tensor) else a for a in call.args]
        return [torch.as_tensor(function(*given)).to(tensors[0].dtype)]


def _on_cpu(record: Record, call: Call) -> Results:
    def moved(arg: Any) -> Any:
        if isinstance(arg, (list, tuple)):
            return [moved(item) for item in arg]
        if isinstance(arg, torch.device):
            return torch.device("cpu")
        return arg.cpu() if isinstance(arg, Tensor) else arg

    kwargs = {name: moved(arg) for name, arg in call.kwargs.items()}
    return _same(record, Call([moved(a) for a in call.args], kwargs))

"""The end of a network that leaves nothing to correlate: a ReLU whose column is 0 for a whole batch."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from whynan.repair.calls import fn
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.edit import Edit
from whynan.repair.source import Expression, Source

TITLE = "end with the linear layer: a ReLU after it makes columns that are 0 for a whole batch, and those correlate with nothing"


def propose(case: Case) -> Iterator[Candidate]:
    source = case.source
    call = fn(source, case.node) if source is not None and case.node is not None else None
    if case.mechanism != "division_by_zero" or case.origin.phase != "forward":
        return
    if call is None or call.name != "corrcoef":
        return
    found = [(file, *end) for file in case.files() for end in _ends(file)]
    if len(found) == 1:
        home, relu, text = found[0]
        edit = Edit(home).replace(relu, text)
        yield from case.change(edit, "linear_end", TITLE, Tier.TRAINING)


def _ends(source: Source) -> Iterator[tuple[Expression, str]]:
    """`return torch.relu(self.out(h))` of a `forward`, `nn.Sequential(..., nn.Linear(8, 4), nn.ReLU())`."""
    for line in source.every(cst.Return):
        function, relu = source.scope(line), fn(source, line.value)
        is_forward = isinstance(function, cst.FunctionDef) and function.name.value == "forward"
        if is_forward and relu is not None and relu.name == "relu" and not relu.rest:
            yield relu.node, source.code(relu.operand)
    for call in source.every(cst.Call):
        layers = [source.code(a.value) for a in call.args]
        last = call.args[-1].value if call.args else None
        is_relu = isinstance(last, cst.Call) and source.code(last.func).split(".")[-1] == "ReLU"
        inner = any(isinstance(above, cst.Call) for above in source.ancestors(call))
        named = source.code(call.func).endswith("Sequential") and not inner
        if named and is_relu:
            yield call, f"{source.code(call.func)}({', '.join(layers[:-1])})"

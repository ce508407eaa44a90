"""Causes in what an operation was given: data, a number that is held, set or computed by the program."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator

from whynan.diagnosis.makers import CHOOSING
from whynan.diagnosis.words import at, whose
from whynan.model import FROM_BEFORE, REFUSED, Cause, Evidence, Operand, OpRecord, Setting, number
from whynan.ops.table import reading, row, that
from whynan.source.settings import COMPUTING, odd_numbers
from whynan.source.trees import expression_of, last_word

MAX_SHOWN = 48
HANDED_ON = CHOOSING | that("copies") | reading("join") | {"lift_fresh"}


def place_of(maker: OpRecord, op: OpRecord) -> str:
    """`line 12`, or the file's name with it where that is another."""
    if maker.site is None:
        return "upstream"
    if op.site is not None and maker.site.file != op.site.file:
        return f"{os.path.basename(maker.site.file)}:{maker.site.line}"
    return f"line {maker.site.line}"


def came_in(evidence: Evidence, op: OpRecord, culprit: Operand) -> Iterator[Cause]:
    """Of a value outside a function's domain: the data has it, and nothing was computed with it."""
    made, around = culprit.upstream, evidence.around
    if op.op == REFUSED and culprit.role == "value" and all(m.name in HANDED_ON for m in made):
        yield Cause(code="bad_data", evidence=f"{number(culprit.value)} came in with the data")
        return
    if op.derived or culprit.value is None or not all(m.name in HANDED_ON for m in made):
        return
    first = made[-1].inputs[0].source if made and made[-1].inputs else culprit.source
    brought = first == FROM_BEFORE or (made and made[-1].name == "lift_fresh")
    known = around.sample is not None or around.loads
    if brought and known:
        text = f"{number(culprit.value)} came in with the data{whose(around.sample)}"
        yield Cause(code="bad_data", evidence=text)


def kept(op: OpRecord, culprit: Operand) -> Iterator[Cause]:
    """A number that a layer holds, and that no update made."""
    source = culprit.source or ""
    if not source.startswith(("parameter", "buffer")) or op.derived:
        return
    loaded = next((m for m in culprit.upstream if m.name in that("copies")), None)
    when = f"when it was loaded ({place_of(loaded, op)})" if loaded is not None else "before this step began"  # fmt: skip
    yield Cause(code="poisoned_state", evidence=f"{source} was {number(culprit.value)} {when}")


def a_setting(setting: Setting) -> Iterator[Cause]:
    place = f"{os.path.basename(setting.file)}:{setting.line}"
    written = expression_of(setting.text.partition("=")[2])
    gives = f", which gives {number(setting.value)}" if isinstance(written, COMPUTING[:3]) else ""
    yield Cause(code="setting", evidence=f"{place} sets `{setting.text}`{gives}")


def unbounded(op: OpRecord, culprit: Operand) -> Iterator[Cause]:
    """What was computed may be anything; what was chosen or handed on is somebody else's."""
    made = [m for m in culprit.upstream if m.name not in HANDED_ON]
    if made and "compares" in row(made[0].name).does:
        return
    if op.op == REFUSED and (culprit.source or "").startswith("parameter"):
        needs = op.scalars.get("needs")
        yield Cause(code="unbounded", evidence=f"it is trained, and nothing keeps it {needs}")
        return
    if op.derived or culprit.value is None or (culprit.value == 0 and op.op != REFUSED):
        return
    if op.op.startswith("array.") and _is_data(culprit.name):
        where = at(op.outputs[0].first or op.outputs[0].index) if op.outputs else ""
        text = f"{number(culprit.value)} came in with the data, `{culprit.name}`{where}"
        yield Cause(code="bad_data", evidence=text)
        return
    if op.op.startswith("array."):  # of NumPy's operands only the text is known
        name = culprit.name if isinstance(expression_of(culprit.name or ""), COMPUTING) else None
        place = ""
    elif made and not made[0].derived:
        written = made[0].site.expression if made[0].site is not None else ""
        if made[0].site == op.site:  # within the call that refuses it
            written = culprit.name or ""
        name = written if written and len(written) <= MAX_SHOWN else made[0].name.strip("_")
        place = f"{place_of(made[0], op)}: "
    else:
        return
    if name is not None:
        what = f"`{name}` gave {number(culprit.value)}"
        yield Cause(code="unbounded", evidence=f"{place}{what}, and nothing keeps it where the function is defined")  # fmt: skip


def _is_data(name: str | None) -> bool:
    """`df["pm10"].to_numpy()`: a column as it stands there, with nothing computed from it."""
    part, has_column = expression_of(name or ""), False
    while not isinstance(part, ast.Name):
        has_column |= isinstance(part, ast.Subscript)
        if isinstance(part, ast.Call) and last_word(part.func) in ("to_numpy", "astype", "numpy"):
            part = part.func
        elif isinstance(part, ast.Attribute | ast.Subscript):
            part = part.value
        else:
            return False
    return has_column


def computed(op: OpRecord, culprit: Operand) -> Iterator[Cause]:
    """A number that the program computed without torch, and made a tensor of."""
    made = culprit.upstream
    if op.derived or culprit.value != 0 or not made or made[-1].name != "lift_fresh":
        return
    call = expression_of(made[-1].site.expression) if made[-1].site is not None else None
    given = call.args[0] if isinstance(call, ast.Call) and call.args else None
    if isinstance(given, COMPUTING) and all(m.name in HANDED_ON for m in made):
        text = f"{place_of(made[-1], op)}: `{ast.unparse(given)}` gave {number(culprit.value)}"
        yield Cause(code="computed", evidence=text)


def computed_argument(op: OpRecord) -> Iterator[Cause]:
    """A number that no operation should be given, where the call that gives it computes it."""
    call = expression_of(op.site.expression) if op.site is not None else None
    if op.derived or not isinstance(call, ast.Call):
        return
    for role, value in ((r, v) for o, r, v in odd_numbers(op) if o is op):
        given = [k.value for k in call.keywords if k.arg == role]
        if given and isinstance(given[0], COMPUTING[:3]):
            text = f"`{ast.unparse(given[0])}` gave {number(value)} as {role}"
            yield Cause(code="computed", evidence=text)


def too_few(op: OpRecord, culprit: Operand) -> Iterator[Cause]:
    part = culprit.slice_stats or culprit.stats
    if part is not None and part.count == 1:
        yield Cause(code="too_few_values", evidence="one value has no spread: two are needed")


def small_exponent(evidence: Evidence, op: OpRecord, culprit: Operand) -> Iterator[Cause]:
    """Of a power at 0: below an exponent of 1 it has no finite slope there."""
    exponent = op.scalar("exponent")
    if op.name != "pow" or culprit.value != 0 or exponent is None or not -1 < exponent < 0:
        return
    setting = evidence.around.setting
    if setting is not None:
        yield from a_setting(setting)
    else:
        text = f"the exponent is {number(exponent + 1)}; the slope at 0 is infinite below 1"
        yield Cause(code="small_exponent", evidence=text)

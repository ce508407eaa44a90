"""Changes to the training itself: optimizer eps, clipping, learning rate, initialisation."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator

import libcst as cst

from whynan.model import HistoryRow, Unstable
from whynan.ops.table import that
from whynan.repair.calls import number_of
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.constants import Constants, entries_of
from whynan.repair.edit import Edit
from whynan.repair.places import Lost
from whynan.repair.project import Project
from whynan.repair.source import Expression, Source

OPTIMIZERS = frozenset(
    {"SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "LBFGS",
     "ASGD", "Rprop"}
)  # fmt: skip
# An update squares the gradient: that overflows whatever the rate.
SQUARES = that("squares")
BLOW = 1e3  # times the gradients before it
ORDINARY = 3  # steps without a blow before it
GREW = 10.0  # times the first gradient, before the last one
ROSE = 3.0  # times the smallest loss before
THROWN = 100.0  # times a weight's own size, in one update
LEAPT = 0.5  # of a weight's own size, in one update
USUAL = {"momentum": 0.99, "weight_decay": 1e-3}  # at most
DIVERGING = frozenset({"high_learning_rate", "exploding_gradients"})
TRAINABLE = ("overflow", "log_nonpositive", "invalid_domain", "sqrt_negative")


def propose(case: Case) -> Iterator[Candidate]:
    in_step = case.origin.phase == "optimizer"
    for source in case.files():
        for call in optimizers(source):
            if in_step and case.mechanism == "division_by_zero":
                yield from _eps(case, source, call)
            if in_step and case.mechanism == "sqrt_negative":
                yield from _uncentered(case, source, call)
    if case.mechanism not in TRAINABLE or case.origin.phase in ("data", "init"):
        return
    if case.mechanism == "sqrt_negative" and in_step and _cancels(case):
        return  # a difference that rounds below 0 does so at any rate
    if case.anomaly.evidence.around.unstable is not None:
        yield from _stable(case, case.anomaly.evidence.around.unstable)
        return  # at another rate it would only take longer
    diverged = in_step or _diverged(case)
    yield from _drawn_narrower(case)
    for source in case.files():
        yield from _initialised(case, source)
        if diverged:
            yield from _less_decay(case, source)
        if case.origin.step > 0 and diverged:
            yield from _slower_by_hand(case, source)
        for call in optimizers(source):
            # Before the first update neither rate nor clipping has had a say; L-BFGS, which
            # evaluates several times in one step, is the exception.
            if in_step:
                slower = case.origin.name not in SQUARES
            else:
                slower = (case.origin.step > 0 and diverged) or _name(call) == "LBFGS"
            parts = [_slower(case, source, call)] if slower else []
            if slower or in_step:
                clipped = _clipped(case, source, call)
                parts = [clipped, *parts] if _was_one_blow(case) else [*parts, clipped]
            for part in parts:
                yield from part


def _cancels(case: Case) -> bool:
    return any(cause.code == "cancellation" for cause in case.anomaly.finding.causes)


def _diverged(case: Case) -> bool:
    """Whether the course of the training led there: a formula that fails on ordinary weights is
    not mended by a slower one."""
    if {cause.code for cause in case.anomaly.finding.causes} & DIVERGING:
        return True
    rows = _rows_before(case)
    losses = [abs(r.loss) for r in rows if r.loss is not None and math.isfinite(r.loss)]
    rose = len(losses) > 1 and losses[-1] > ROSE * min(losses)
    moved = max((r.update_ratio or 0.0 for r in rows), default=0.0)
    return moved > THROWN or _was_one_blow(case) or (rose and (moved > LEAPT or len(losses) > 2))


def _rows_before(case: Case) -> list[HistoryRow]:
    return [r for r in case.anomaly.evidence.around.history if r.step < case.origin.step]


def _was_one_blow(case: Case) -> bool:
    """One huge gradient after ordinary ones: a tenth of the rate is a tenth of a huge step."""
    rows = _rows_before(case)
    sizes = [r.grad_max for r in rows if r.grad_max is not None and math.isfinite(r.grad_max)]
    if not sizes:
        return any(r.grad_max is not None for r in rows)  # beyond what can be measured
    earlier = sizes[:-1]
    if 0 < len(earlier) < ORDINARY:
        return False
    if earlier and earlier[-1] > GREW * max(1.0, earlier[0]):
        return False  # it grew from step to step
    return sizes[-1] > BLOW * max([1.0, *earlier] if earlier else [BLOW])


def optimizers(source: Source) -> list[cst.Call]:
    """Every optimizer that is made in the file."""
    return [c for c in source.every(cst.Call) if _name(c) in OPTIMIZERS]


def _name(call: cst.Call) -> str:
    func = call.func
    return func.attr.value if isinstance(func, cst.Attribute) else getattr(func, "value", "")


def _keyword(call: cst.Call, name: str) -> cst.Arg | None:
    return next((a for a in call.args if a.keyword and a.keyword.value == name), None)


def with_keyword(source: Source, call: cst.Call, name: str, value: str) -> Edit:
    """The call with another value for an argument."""
    given = _keyword(call, name)
    if given is not None:
        return Edit(source).replace(given.value, value)
    text = source.code(call).removesuffix(")").rstrip(", \n")
    return Edit(source).replace(call, f"{text}, {name}={value})")


def _eps(case: Case, source: Source, call: cst.Call) -> Iterator[Candidate]:
    half = case.dtype == "float16"
    eps = "1e-4" if half else "1e-8"
    why = "that float16 can hold" if half else "above 0"
    given = _setting(case, source, call, "eps")
    if given is not None:
        edit = Edit(given[0]).replace(given[1], eps)
    else:
        edit = with_keyword(source, call, "eps", eps)
    yield from case.change(edit, "optimizer_eps", f"give the optimizer an eps {why}", Tier.GUARD)


def _uncentered(case: Case, source: Source, call: cst.Call) -> Iterator[Candidate]:
    if _keyword(call, "centered") is not None:
        edit = with_keyword(source, call, "centered", "False")
        title = "use the plain second moment: the centered one cancels to below 0"
        yield from case.change(edit, "uncentered", title, Tier.GUARD)


def _slower(case: Case, source: Source, call: cst.Call) -> Iterator[Candidate]:
    given = _setting(case, source, call, "lr")
    if given is not None:
        yield from _lowered(case, given[0], [given[1]])


def _slower_by_hand(case: Case, source: Source) -> Iterator[Candidate]:
    """The rates in `w -= lr * w.grad` and the like, where there is no optimizer."""
    rates = []
    for product in source.every(cst.BinaryOperation):
        if isinstance(product.operator, cst.Multiply) and _is_update(source, product):
            sides = (product.left, product.right)
            rates += [a for a, b in (sides, sides[::-1]) if ".grad" in source.code(b)]
    for call in source.every(cst.Call):
        scale = _keyword(call, "alpha")
        if _name(call) in ("add_", "sub_") and scale is not None and ".grad" in source.code(call):
            rate = scale.value
            rates.append(rate.expression if isinstance(rate, cst.UnaryOperation) else rate)
    found = {id(node): node for r in rates if (node := _default_of(source, r) or r)}
    if found:
        yield from _lowered(case, source, list(found.values()))


def _is_update(source: Source, product: cst.BinaryOperation) -> bool:
    """Whether a product with a gradient is what a weight is moved by."""
    above = source.parent(product)
    while isinstance(above, (cst.BinaryOperation, cst.Arg)):
        above = source.parent(above)
    if isinstance(above, cst.AugAssign):
        return isinstance(above.operator, (cst.SubtractAssign, cst.AddAssign))
    return isinstance(above, cst.Assign) or (
        isinstance(above, cst.Call) and _name(above) in ("sub_", "add_", "copy_")
    )


def _lowered(case: Case, source: Source, rates: list[cst.BaseExpression]) -> Iterator[Candidate]:
    if any(number_of(rate) == 0 for rate in rates):
        return  # a schedule sets it as it goes
    for factor, words in ((0.1, "a tenth"), (0.01, "a hundredth")):
        edit = Edit(source)
        for rate in rates:
            value = number_of(rate)
            text = f"{factor} * {source.receiver(rate)}"
            edit.replace(rate, text if value is None else _short(value * factor))
        yield from case.change(
            edit, "lower_lr", f"lower the learning rate to {words}", Tier.TRAINING
        )


def _setting(
    case: Case, source: Source, call: cst.Call, name: str
) -> tuple[Source, Expression] | None:
    """What an optimizer is given under a name: where the number is written, else as typed."""
    constants = Constants(Project(case))
    home = constants.project.source(source.path)
    here = next((c for c in optimizers(home) if home.start(c) == source.start(call)), None) if home else None  # fmt: skip
    if home is None or here is None:
        return None
    given = _keyword(here, name)
    found = [(home, given.value)] if given is not None else []
    for arg in here.args:
        table = constants.table(home, arg.value) if arg.star == "**" else None
        if table is not None:
            found += [(table[0], entry.value) for entry in entries_of(table[1], name)]
        elif arg.star == "**":
            found += [(f, node) for f in constants.project.settings() for node in f.numbers(name)]
    if len(found) > 1:
        return None
    for where, node in found:
        literal = constants.of(where, node)
        if literal is not None and isinstance(literal.node, Expression):
            return literal.source, literal.node
        return where, node
    return None


def _default_of(source: Source, node: cst.BaseExpression) -> cst.BaseExpression | None:
    """The number that a name stands for: a constant, or a parameter's default."""
    if not isinstance(node, cst.Name):
        return None
    bindings = source.bindings(node.value, source.scope(node))
    bindings = bindings or source.bindings(node.value, source.module)
    above = source.parent(bindings[0]) if len(bindings) == 1 else None
    if isinstance(above, cst.AssignTarget):
        above = source.parent(above)
    value = above.default if isinstance(above, cst.Param) else None
    value = above.value if isinstance(above, cst.Assign) else value
    return value if number_of(value) is not None else None


def _short(value: float) -> str:
    """1e-5 as people write it, not 1e-05."""
    return f"{value:g}".replace("e-0", "e-")


def _stable(case: Case, unstable: Unstable) -> Iterator[Candidate]:
    """`momentum=9` where 0.9 was meant, a weight decay of 50: a number of the usual size."""
    usual = USUAL[unstable.name]
    value = unstable.value
    while value > usual:
        value /= 10
    place = Constants(Project(case)).setting_of(unstable.name, unstable.value)
    given = (place.source, place.node) if place is not None else None
    for source in case.files() if given is None else ():
        for call in optimizers(source):
            given = given or _setting(case, source, call, unstable.name)
    if given is not None and isinstance(given[1], Expression):
        edit = Edit(given[0]).replace(given[1], _short(value))
        title = f"give `{unstable.name}` a value such as {_short(value)}: {unstable.why}"
        yield from case.change(edit, f"lower_{unstable.name}", title, Tier.TRAINING)


def _less_decay(case: Case, source: Source) -> Iterator[Candidate]:
    """A weight decay that more than undoes a step makes the weight grow."""
    places = [_setting(case, source, call, "weight_decay") for call in optimizers(source)]
    places += [
        (source, e.value)
        for e in source.every(cst.DictElement)
        if source.code(e.key).strip("'\"") == "weight_decay"
    ]
    for place in places:
        value = number_of(place[1]) if place is not None else None
        if place is not None and value is not None and value >= 1:
            edit = Edit(place[0]).replace(place[1], _short(value * 0.001))
            title = "lower the weight decay: times the learning rate it must stay below 1"
            yield from case.change(edit, "lower_weight_decay", title, Tier.TRAINING)


def _clipped(case: Case, source: Source, call: cst.Call) -> Iterator[Candidate]:
    """clip_grad_norm_ right before `optimizer.step()`."""
    parameters = call.args[0].value if call.args else None
    above = source.parent(call)
    if parameters is None or not isinstance(above, cst.Assign):
        return
    optimizer = source.code(above.targets[0].target)
    what = source.code(parameters)
    clips = "clip_grad" in source.text
    for line in source.every(cst.SimpleStatementLine):
        if source.code(line).split("#")[0].strip() != f"{optimizer}.step()":
            continue
        if source.scope(line) is not source.scope(call) and not what.startswith("self."):
            continue
        if not clips:
            title = "clip the norm of the gradients before the step"
            clip = f"torch.nn.utils.clip_grad_norm_({what}, max_norm=1.0)"
            yield from case.change(Edit(source).before(line, clip), "clip_grad_norm", title, Tier.TRAINING)  # fmt: skip
        if case.origin.phase != "optimizer":
            return
        title = "clip each gradient before the step: their norm itself would overflow"
        clip = f"torch.nn.utils.clip_grad_value_({what}, clip_value=1.0)"
        place = _first_clip(source, line) or line
        yield from case.change(Edit(source).before(place, clip), "clip_grad_value", title, Tier.TRAINING)  # fmt: skip
        return


def _first_clip(source: Source, step: cst.SimpleStatementLine) -> cst.SimpleStatementLine | None:
    block = source.parent(step)
    lines = block.body if isinstance(block, cst.IndentedBlock) else ()
    clips = [
        s for s in lines if isinstance(s, cst.SimpleStatementLine) and "clip_grad" in source.code(s)
    ]
    return clips[0] if clips else None


def _initialised(case: Case, source: Source) -> Iterator[Candidate]:
    """A weight that was drawn far too large gets the initialisation of its fan-in."""
    if not any(c.code == "bad_init" for c in case.anomaly.finding.causes):
        return
    edit, found = Edit(source), 0
    for call in source.every(cst.Call):
        name = _name(call)
        home = source.code(call.func.value) if isinstance(call.func, cst.Attribute) else ""
        drawn = home.endswith("init") and name in ("uniform_", "normal_", "constant_", "ones_", "trunc_normal_", "xavier_uniform_", "xavier_normal_", "orthogonal_")  # fmt: skip
        if drawn and call.args and source.code(call.args[0].value).endswith("weight"):
            text = (
                f'{home}.kaiming_uniform_({source.code(call.args[0].value)}, nonlinearity="relu")'
            )
            edit.replace(call, text)
            found += 1
    if found:
        title = "initialise the weights for their number of inputs"
        yield from case.change(edit, "kaiming_init", title, Tier.TRAINING)


def _drawn_narrower(case: Case) -> Iterator[Candidate]:
    """`init.normal_(w, std=cfg.init_std)`: the number itself, by the number of inputs."""
    if not any(c.code == "bad_init" for c in case.anomaly.finding.causes):
        return
    widths = [
        o.stats.shape[-1]
        for o in case.origin.inputs
        if o.stats is not None and len(o.stats.shape) == 2
    ]
    constants = Constants(Project(case))
    try:
        calls = [(s, c) for s in constants.project.mentioning("std") for c in s.every(cst.Call)]
    except Lost:
        return
    for source, call in calls if widths else ():
        given = _keyword(call, "std") if _name(call) in ("normal_", "trunc_normal_") else None
        literal = constants.of(source, given.value) if given is not None else None
        value = number_of(literal.node) if literal is not None else None
        narrow = f"{(2 / widths[0]) ** 0.5:.1g}"
        if literal is None or value is None or float(narrow) >= value:
            continue
        if isinstance(literal.node, Expression) and given is not None and literal.node is not given.value:  # fmt: skip
            file, line = os.path.basename(literal.source.path), literal.source.line(literal.node)
            title = f"draw the weights {narrow} wide, for their number of inputs, where that is set ({file}, line {line})"
            edit = Edit(literal.source).replace(literal.node, narrow)
            yield from case.change(edit, "kaiming_init", title, Tier.TRAINING)
            return

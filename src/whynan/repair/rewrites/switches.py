"""Ways around a kernel or a compiler that is wrong: another one is chosen, for as little as possible.

Regions grow: the statement, the function, the program.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from whynan.model import Opinion
from whynan.ops.table import LISTS, kernel, row
from whynan.repair.calls import fn
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.edit import Edit
from whynan.repair.rewrites.training import optimizers, with_keyword
from whynan.repair.source import Expression, Source

MATH = "torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)"
WITHOUT = {
    "without oneDNN": ("torch.backends.mkldnn", "without_onednn", "oneDNN"),
    "without cuDNN": ("torch.backends.cudnn", "without_cudnn", "cuDNN"),
}
# Which of attention's kernels an operator is, and what switches it off for good.
ATTENTIONS = {"flash": "enable_flash_sdp", "efficient": "enable_mem_efficient_sdp", "cudnn": "enable_cudnn_sdp"}  # fmt: skip
ALONE = re.compile(r"\bx\b")  # the operand of a form
DETERMINISTIC = "torch.use_deterministic_algorithms(True)"


def propose(case: Case) -> Iterator[Candidate]:
    if any(cause.code == "autocast" for cause in case.anomaly.finding.causes):
        yield from _autocast_off(case)
        yield from _no_autocast(case)
    if case.mechanism == "wrong_kernel":
        yield from _exactly(case)
        others = kernel(case.origin.name)[0].others
        if "math" in others:
            yield from _attention(case)
        for other in others:
            if other in WITHOUT and _helps(case, other):
                yield from _without(case, *WITHOUT[other])
        yield from _plain_update(case)
    if case.mechanism == "unstable_result":
        title = "have torch choose kernels that give the same each time"
        yield from _from_the_start(case, DETERMINISTIC, "deterministic", title)
    if case.mechanism == "compiled_only":
        yield from _written_otherwise(case)
        yield from _not_compiled(case)
        yield from _other_backend(case)


def _helps(case: Case, other: str) -> bool:
    return any(o.how == other and not o.nonfinite for o in _asked(case))


# ---- settings ---------------------------------------------------------------------------


def _autocast_off(case: Case) -> Iterator[Candidate]:
    """The statement alone, its operands as they are or, if others before it are narrow, widened."""
    source, node = case.source, case.node
    line = source.statement(node) if source is not None and node is not None else None
    if source is None or node is None or line is None:
        return
    device = "cuda" if _is_on_cuda(case) else "cpu"
    block = f'with torch.autocast("{device}", enabled=False):'
    title = "leave this statement out of the autocast"
    edit = Edit(source).wrap(line, block)
    yield from case.change(edit, "autocast_off", title, Tier.EXACT)
    edit = Edit(source).wrap(line, block)
    operands = _operands(node)
    for operand in operands:
        edit.replace(operand, f"{source.receiver(operand)}.float()")
    if operands:
        title += ", on float32 operands"
        yield from case.change(edit, "autocast_off", title, Tier.EXACT)


def _no_autocast(case: Case) -> Iterator[Candidate]:
    """Where the source turns it on."""
    for source in case.files():
        for call in source.every(cst.Call):
            if source.code(call.func).split(".")[-1] == "autocast":
                edit = with_keyword(source, call, "enabled", "False")
                yield from case.change(edit, "autocast_off", "switch the autocast off", Tier.EXACT)


def _is_on_cuda(case: Case) -> bool:
    return any("cuda" in (o.device or "") for o in _asked(case))


def _asked(case: Case) -> tuple[Opinion, ...]:
    return case.origin.opinions.asked if case.origin.opinions is not None else ()


def _operands(node: Expression) -> list[Expression]:
    if isinstance(node, cst.BinaryOperation):
        return [node.left, node.right]
    if isinstance(node, cst.Call):
        return [a.value for a in node.args if a.keyword is None and not a.star][:1]
    return []


def _exactly(case: Case) -> Iterator[Candidate]:
    for opinion in _asked(case):
        if opinion.is_setting and not opinion.nonfinite:
            switch = opinion.how.removeprefix("with ")
            title = (
                f"compute as exactly as in the beginning, {opinion.how}: the setting is taken back"
            )
            yield from _from_the_start(case, switch, "full_precision", title)


# ---- kernels ----------------------------------------------------------------------------


def _attention(case: Case) -> Iterator[Candidate]:
    title = "workaround: attention by its math kernel"
    yield from _around(case, MATH, "sdpa_math", title)
    for word, switch in ATTENTIONS.items():
        if word in case.origin.op:
            text = f"torch.backends.cuda.{switch}(False)"
            title = f"workaround: without the {word} kernel of attention, in the whole program"
            yield from _from_the_start(case, text, "sdpa_switch", title)


def _without(case: Case, home: str, kind: str, library: str) -> Iterator[Candidate]:
    block = f"{home}.flags(enabled=False)"
    if case.origin.phase == "backward":
        yield from _around_backward(
            case, block, kind, f"workaround: this backward pass without {library}"
        )
    else:
        yield from _around(case, block, kind, f"workaround: this call without {library}")
    title = f"workaround: without {library}, in the whole program"
    yield from _from_the_start(case, f"{home}.enabled = False", kind, title)


def _around(case: Case, block: str, kind: str, title: str) -> Iterator[Candidate]:
    """The statement in which the call stands, in a block of its own."""
    source, node = case.source, case.node
    line = source.statement(node) if source is not None and node is not None else None
    if source is not None and line is not None:
        edit = Edit(source).wrap(line, f"with {block}:")
        yield from case.change(edit, kind, title, Tier.EXACT)


def _around_backward(case: Case, block: str, kind: str, title: str) -> Iterator[Candidate]:
    for source in case.files():
        lines = [s for s in source.every(cst.SimpleStatementLine) if ".backward(" in source.code(s)]
        edit = Edit(source)
        for line in lines:
            edit.wrap(line, f"with {block}:")
        if lines:
            yield from case.change(edit, kind, title, Tier.EXACT)


def _from_the_start(case: Case, text: str, kind: str, title: str) -> Iterator[Candidate]:
    for source in case.files():
        first = _after_imports(source)
        if first is not None:
            yield from case.change(Edit(source).before(first, text), kind, title, Tier.EXACT)
            return


def _after_imports(source: Source) -> cst.CSTNode | None:
    for line in source.module.body:
        small = line.body[0] if isinstance(line, cst.SimpleStatementLine) else None
        if not isinstance(small, (cst.Import, cst.ImportFrom, cst.Expr)):
            return line
    return None


def _plain_update(case: Case) -> Iterator[Candidate]:
    name = case.origin.op.split(".")[1] if case.origin.op.count(".") > 1 else ""
    word = "fused" if name.startswith("_fused") else "foreach" if name.startswith(LISTS) else ""
    if not word or case.origin.phase != "optimizer":
        return
    title = f"workaround: make the optimizer with `{word}=False`"
    for source in case.files():
        for call in optimizers(source):
            edit = with_keyword(source, call, word, "False")
            yield from case.change(edit, "plain_optimizer", title, Tier.EXACT)


# ---- the compiler -----------------------------------------------------------------------


def _written_otherwise(case: Case) -> Iterator[Candidate]:
    """The same function by others that the compiler keeps exact: it stays compiled."""
    source, node = case.source, case.node
    call = fn(source, node) if source is not None else None
    if source is None or call is None or call.rest or call.inplace:
        return
    form = row(case.origin.name).otherwise
    if not form or row(call.name) is not row(case.origin.name):
        return
    edit, operand = Edit(source), source.code(call.operand)
    if not isinstance(call.operand, (cst.Name, cst.Attribute)):
        line, name = source.statement(call.node), _free(source)
        if line is None or name is None or _stands_apart(source, call.node, line):
            return
        edit.before(line, f"{name} = {operand}")
        operand = name
    edit.replace(call.node, ALONE.sub(lambda _: operand, form))
    title = f"a way around: `{call.name}` written in functions that the compiler keeps exact"
    yield from case.change(edit, "written_otherwise", title, Tier.EXACT)


def _free(source: Source) -> str | None:
    used = {name.value for name in source.every(cst.Name)}
    return next((name for name in ("x", "operand", "argument") if name not in used), None)


def _stands_apart(source: Source, node: cst.CSTNode, line: cst.CSTNode) -> bool:
    """Whether it is not computed once, whenever its statement runs."""
    for around in source.ancestors(node):
        if around is line:
            return False
        if isinstance(around, (cst.Lambda, cst.BaseComp, cst.IfExp, cst.BooleanOperation)):
            return True
    return True


def _not_compiled(case: Case) -> Iterator[Candidate]:
    source, node = case.source, case.node
    if source is None or node is None:
        return
    function = source.scope(node)
    if isinstance(function, cst.FunctionDef):
        edit = Edit(source).decorate(function, "torch.compiler.disable")
        title = f"workaround: `{function.name.value}` is not compiled"
        yield from case.change(edit, "uncompiled", title, Tier.EXACT)


def _other_backend(case: Case) -> Iterator[Candidate]:
    """The last stage that is right."""
    climb = case.anomaly.evidence.climb
    good = [rung.name for rung in climb.rungs if not rung.bad] if climb is not None else []
    if not good:
        return
    for source in case.files():
        for call in source.every(cst.Call):
            if source.code(call.func) == f"{source.torch_name() or 'torch'}.compile":
                edit = with_keyword(source, call, "backend", f'"{good[-1]}"')
                title = f"workaround: compile with the backend `{good[-1]}`"
                yield from case.change(edit, "other_backend", title, Tier.EXACT)

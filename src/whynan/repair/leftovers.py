"""Variables that nothing reads any more once a change is made: their lines go with it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

import libcst as cst

from whynan.ops.table import spelled
from whynan.repair.calls import fn
from whynan.repair.source import Expression, Source

WORD = re.compile(r"[^\W\d]\w*")
# Only what does nothing but compute may go unrun: no drawing of numbers, no module of the user's.
LAYERS = ("sample", "heads", "features", "channel", "window", "bag", "put", "unknown")
COMPUTES = spelled(lambda op: op.reads not in LAYERS and not op.does & {"random", "overwrites"})
COMPUTES = COMPUTES - {"embedding"} | {"size"}  # it may bound its table


def unread(
    source: Source,
    replaced: Mapping[cst.CSTNode, str],
    anchors: Collection[cst.CSTNode],
    said: str,
    inlined: Collection[cst.CSTNode],
) -> set[cst.SimpleStatementLine]:
    """Assignments whose name was read only in what was `replaced`.

    `said` is all new text; the statements in `anchors` hold it up, and stay; the values in `inlined`
    were taken over into it, so that they are known to do nothing else.
    """
    gone: set[cst.SimpleStatementLine] = set()
    kept = set(WORD.findall(said))
    readers: list[cst.CSTNode] = list(replaced)
    while readers:
        reader = readers.pop()
        for name in _names(source, reader):
            if name.value in kept or (found := _only_assignment(source, name)) is None:
                continue
            line, value = found
            if line in gone or line in anchors or any(n in replaced for n in source.below(line)):
                continue
            if _is_read(source, name, [*replaced, *gone]) or _fills_its_block(source, line, gone):
                continue
            if value in inlined or only_computes(source, value):
                gone.add(line)
                readers.append(line)
    return gone


def _names(source: Source, node: cst.CSTNode) -> Iterator[cst.Name]:
    if isinstance(node, cst.Name):
        yield node
    yield from (n for n in source.every(cst.Name, node) if source.reads(n))


def _only_assignment(
    source: Source, name: cst.Name
) -> tuple[cst.SimpleStatementLine, Expression] | None:
    """`name = value` on a line of its own, if that is all the name ever gets."""
    given = source.bindings(name.value, source.scope(name))
    line = source.statement(given[0]) if len(given) == 1 else None
    assign = line.body[0] if line is not None and len(line.body) == 1 else None
    if line is None or not isinstance(assign, cst.Assign):
        return None
    if len(assign.targets) != 1 or assign.targets[0].target is not given[0]:
        return None
    around = [a for a in source.ancestors(line) if isinstance(a, (cst.ClassDef, cst.FunctionDef))]
    return None if around and isinstance(around[0], cst.ClassDef) else (line, assign.value)


def _is_read(source: Source, name: cst.Name, besides: list[cst.CSTNode]) -> bool:
    scope = source.scope(name)
    for read in source.every(cst.Name, None if scope is source.module else scope):
        if read.value != name.value or not source.reads(read) or read in besides:
            continue
        if not any(above in besides for above in source.ancestors(read)):
            return True
    return False


def _fills_its_block(
    source: Source, line: cst.SimpleStatementLine, gone: set[cst.SimpleStatementLine]
) -> bool:
    block = getattr(source.parent(line), "body", ())
    return all(other is line or other in gone for other in block)


def only_computes(source: Source, value: Expression) -> bool:
    nodes = [value, *source.below(value)]
    if any(isinstance(n, (cst.Await, cst.Yield, cst.NamedExpr, cst.Lambda)) for n in nodes):
        return False
    for call in (n for n in nodes if isinstance(n, cst.Call)):
        found = fn(source, call)
        if found is None or found.inplace or found.name not in COMPUTES:
            return False
    return True

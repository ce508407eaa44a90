"""Which names of a function or module carry a value on, on whatever way its statements run.

Names, not bindings: what a name holds can be looked at while the program runs, what it held cannot.
"""

from __future__ import annotations

import ast
from types import CodeType

from whynan.source.bindings import Binding, Scope
from whynan.source.names import names_of
from whynan.source.trees import Loop, function_of, tree_of

HOLDS = frozenset({"is", "part", "item", "entered", "added", "changed"})


def scope_of(code: CodeType) -> Scope | None:
    """The function or module that a code object was made of."""
    function = function_of(code)
    return names_of(tree_of(code.co_filename)).scopes.get(function) if function else None


def names_read(scope: Scope, statement: ast.stmt) -> set[str]:
    """Names that a statement mentions for their value; of a loop or `with`, its head."""
    steps = [*scope.steps[statement], *scope.late.get(statement, ())]
    return {step.id for step in steps if isinstance(step, ast.Name)}


def names_written(scope: Scope, statement: ast.stmt) -> set[str]:
    """Names that hold its result: targets, objects one of whose methods it calls, what it is to fill."""
    steps = [*scope.steps[statement]]
    if isinstance(statement, ast.For | ast.AsyncFor):
        steps += scope.steps[statement.target]
    bindings = [step for step in steps if isinstance(step, Binding) and step.how in HOLDS]
    found = {name for b in bindings if (name := _base(b.node)) is not None}
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
        receiver = _base(call.func)
        found |= {receiver} if receiver is not None else set()
    if isinstance(call, ast.Call):  # `np.log(x, out=y)`
        given = [k.value for k in call.keywords if k.arg == "out"]
        found |= {name for node in given if (name := _base(node)) is not None}
    return found


def _base(node: ast.AST) -> str | None:
    """`model` for `model.layers[0].bias`."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def statements_of(scope: Scope) -> list[ast.stmt]:
    """Every statement of a scope, without those of functions and classes defined in it."""
    return [node for node in scope.steps if isinstance(node, ast.stmt) and node is not scope.node]


def written_in_loops(scope: Scope) -> set[str]:
    """Names that hold another value in each round."""
    every = statements_of(scope)
    loops = [(s.lineno, s.end_lineno or s.lineno) for s in every if isinstance(s, Loop)]
    inside = [s for s in every if any(a <= s.lineno <= b for a, b in loops)]
    return {name for s in inside for name in names_written(scope, s)}


def spread(scope: Scope, names: set[str]) -> dict[str, str | None]:
    """Every name that values of `names` can have gone on to, and the name each came from."""
    reached: dict[str, str | None] = dict.fromkeys(names)
    every = [(names_read(scope, s), names_written(scope, s)) for s in statements_of(scope)]
    while True:
        new = {
            target: min(read & reached.keys())
            for read, written in every
            if read & reached.keys()
            for target in written - reached.keys()
        }
        if not new:
            return reached
        reached |= new


def given_to(scope: Scope, name: str) -> set[str]:
    """Names that every call which makes `name` is given: those that it can have kept."""
    calls = [b.value for b in scope.bound.get(name, ()) if b.how in ("is", "part")]
    found = [
        {a.id for a in (*c.args, *(k.value for k in c.keywords)) if isinstance(a, ast.Name)}
        if isinstance(c, ast.Call)
        else set[str]()
        for c in calls
    ]
    return set.intersection(*found) if found else set()

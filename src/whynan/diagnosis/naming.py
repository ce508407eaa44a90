"""What the user called things: operand names and the call, taken from the source as typed."""

from __future__ import annotations

import ast

from whynan.model import OpRecord
from whynan.ops.table import row, spelled
from whynan.source.trees import UNREADABLE, expression_of, last_word, parsed, statements

OPERATORS: dict[type[ast.AST], str] = {
    ast.Div: "/", ast.Mult: "*", ast.Add: "+", ast.Sub: "-", ast.Pow: "**", ast.MatMult: "@",
    ast.FloorDiv: "//", ast.Mod: "%", ast.USub: "-",
}  # fmt: skip
MAX_NAME = 32
# torch/_tensor.py's own functions behind `number / tensor` and the like
OPERATOR_WRAPPERS = ("Tensor.__", "_handle_torch_function_and_wrap_type_error")


def _tree(op: OpRecord) -> ast.AST | None:
    text = op.site.expression if op.site else ""
    if not text:
        found = _assigning(op)
        return found and ast.BinOp(left=found.target, op=found.op, right=found.value)
    return expression_of(text)


def _assigning(op: OpRecord) -> ast.AugAssign | None:
    """`x /= n`, which is a statement and no expression, if no other on its line can be meant."""
    site = op.site
    if site is None or site.column is None or site.end_column is None or site.end_line != site.line:
        return None
    try:
        nodes = list(statements(parsed(site.source).body))
    except UNREADABLE:
        return None
    width = site.end_column - site.column
    found = [n for n in nodes if isinstance(n, ast.AugAssign)]
    found = [n for n in found if (n.end_col_offset or 0) - n.col_offset == width]
    return found[0] if len(found) == 1 else None


def call_of(op: OpRecord) -> str:
    """How the user wrote the operation: `torch.log`, `Tensor.log`, `/`, `/=`."""
    assigning = None if op.site is None or op.site.expression else _assigning(op)
    if assigning is not None:
        return f"{OPERATORS[type(assigning.op)]}=" if type(assigning.op) in OPERATORS else op.name
    tree = _tree(op)
    if isinstance(tree, ast.BinOp | ast.UnaryOp):
        return OPERATORS.get(type(tree.op), op.name)
    func = tree.func if isinstance(tree, ast.Call) else None
    if not isinstance(func, ast.Attribute):
        return last_word(func) or op.name
    owner = ast.unparse(func.value)
    part_of_torch = owner.startswith("torch.") and owner.replace(".", "").isidentifier()
    if owner in _NAMESPACES or part_of_torch or owner == "self":
        return f"{owner}.{func.attr}"
    tensor = _matches(func.attr, op) and not op.op.startswith("array.")
    return f"Tensor.{func.attr}" if tensor else func.attr


def short_call(op: OpRecord) -> str:
    """The last word of the call: `log`."""
    call = call_of(op)
    return call.rsplit(".", 1)[-1] if call[-1].isidentifier() else call


def _is_namespace(owner: ast.expr) -> bool:
    """`np`, `jnp.linalg`; attributes of a variable are tensors."""
    if ast.unparse(owner) in _NAMESPACES:
        return True
    while isinstance(owner, ast.Attribute):
        owner = owner.value
    return isinstance(owner, ast.Name) and owner.id in _NAMESPACES


def _matches(attr: str, op: OpRecord) -> bool:
    return attr.strip("_") == op.name.strip("_")


def _is_synonym(name: str, operator: str) -> bool:
    """`power` for `pow`, `half` for a cast."""
    known, called = row(operator), row(name)
    return (known is called and bool(known.name)) or "casts" in known.does & called.does


def right_number(op: OpRecord) -> str | None:
    """The source of the plain number on the right of an operator whose sides do not swap."""
    tree = _tree(op)
    given = op.name in _ORDERED and op.scalar("other", "exponent") is not None
    if not given or op.node is not None or not isinstance(tree, ast.BinOp):
        return None
    if isinstance(tree.right, ast.Constant):
        return None  # the number itself
    text = ast.unparse(tree.right)
    return text if len(text) <= MAX_NAME else None


def operand_names(op: OpRecord) -> list[str | None]:
    """The source text of each input, where the user's expression shows it."""
    names: list[str | None] = [None] * len(op.inputs)
    tree = _tree(op)
    if op.node is not None or not (op.inside is None or _hands_on(op, tree)):
        return names  # a library's formula: the expression's parts are not its operands
    parts: list[ast.AST] = []
    if isinstance(tree, ast.BinOp):
        parts = [tree.left, tree.right]
    elif isinstance(tree, ast.UnaryOp):
        parts = [tree.operand]
    elif isinstance(tree, ast.Call):
        parts = list(tree.args)
        func = tree.func
        if isinstance(func, ast.Attribute) and not _is_namespace(func.value):
            parts = [func.value, *parts]
        name = last_word(func) or ""
        if not _matches(name, op) and not _is_synonym(name.strip("_"), op.name):
            return names
    if isinstance(tree, ast.BinOp) and len(op.inputs) == 1:
        if op.name == "reciprocal" or op.inputs[0].role == "other":
            # How torch computes `number / tensor`; or of the left side nothing is left.
            parts = parts[1:]
        elif right_number(op) is not None:
            parts = parts[:1]
        elif not any(isinstance(p, ast.Constant) for p in parts):
            return names  # one of the two is a plain number; the source does not say which
    constants = [isinstance(p, ast.Constant) for p in parts]
    tensors = [p for p, constant in zip(parts, constants, strict=True) if not constant]
    for i, part in enumerate(tensors[: len(names)]):
        text = ast.unparse(part)
        if len(text) <= MAX_NAME:
            names[i] = text
    return names


def _hands_on(op: OpRecord, tree: ast.AST | None) -> bool:
    """Whether the library's function gives its own arguments to the operation, in their order."""
    if op.inside is None or op.inside.startswith(OPERATOR_WRAPPERS):
        return True
    called = last_word(tree.func) if isinstance(tree, ast.Call) else None
    # `F.embedding` for one takes them the other way round.
    in_order = bool(op.inputs) and op.inputs[0].role in ("self", "input")
    return called == op.inside == op.name and in_order


_NAMESPACES = frozenset(
    {"torch", "F", "nn.functional", "torch.nn.functional", "torch.linalg", "torch.special"}
    | {"np", "numpy", "xp", "cp", "cupy", "jax", "jnp"}
)
_ORDERED = spelled(lambda op: bool(op.python) and op.name not in ("add", "mul"))

"""What the user called things: operand names and the call, taken from the source as typed."""

from __future__ import annotations

import ast

from whynan.model import OpRecord

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
        return None
    try:
        return ast.parse(f"({text}\n)", mode="eval").body
    except SyntaxError:
        return None


def call_of(op: OpRecord) -> str:
    """How the user wrote the operation: `torch.log`, `Tensor.log`, `/`."""
    tree = _tree(op)
    if isinstance(tree, ast.BinOp):
        return OPERATORS.get(type(tree.op), op.name)
    if isinstance(tree, ast.UnaryOp):
        return OPERATORS.get(type(tree.op), op.name)
    if isinstance(tree, ast.Call):
        func = tree.func
        if isinstance(func, ast.Attribute):
            owner = ast.unparse(func.value)
            if owner in _NAMESPACES:
                return f"{owner}.{func.attr}"
            if owner.startswith("torch.") and owner.replace(".", "").isidentifier():
                return f"{owner}.{func.attr}"
            if owner == "self":
                return f"self.{func.attr}"
            tensor = _matches(func.attr, op) and not op.op.startswith("array.")
            return f"Tensor.{func.attr}" if tensor else func.attr
        if isinstance(func, ast.Name):
            return func.id
    return op.name


def short_call(op: OpRecord) -> str:
    """The last word of the call: `log`."""
    call = call_of(op)
    return call.rsplit(".", 1)[-1] if call[-1].isidentifier() else call


def _matches(attr: str, op: OpRecord) -> bool:
    return attr.strip("_") == op.name.strip("_")


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
    through_operator = op.inside is not None and op.inside.startswith(OPERATOR_WRAPPERS)
    if op.node is not None or (op.inside is not None and not through_operator):
        return names  # a library's formula: the expression's parts are not its operands
    tree = _tree(op)
    parts: list[ast.AST] = []
    if isinstance(tree, ast.BinOp):
        parts = [tree.left, tree.right]
    elif isinstance(tree, ast.UnaryOp):
        parts = [tree.operand]
    elif isinstance(tree, ast.Call):
        parts = list(tree.args)
        func = tree.func
        if isinstance(func, ast.Attribute) and ast.unparse(func.value) not in _NAMESPACES:
            parts = [func.value, *parts]
        name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
        if not _matches(name, op) and name.strip("_") not in _SYNONYMS.get(op.name, ()):
            return names
    if isinstance(tree, ast.BinOp) and len(op.inputs) == 1:
        if op.name == "reciprocal":  # how torch computes `number / tensor`
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


_NAMESPACES = frozenset(
    {"torch", "F", "nn.functional", "torch.nn.functional", "torch.linalg", "torch.special"}
    | {"np", "numpy", "xp", "cp", "cupy", "jnp"}
)
_ORDERED = frozenset({"div", "sub", "pow", "remainder", "fmod", "floor_divide"})
_SYNONYMS = {
    "_softmax": ("softmax",), "_log_softmax": ("log_softmax",), "mm": ("matmul",), "bmm": ("matmul",),
    "linalg_vector_norm": ("norm", "vector_norm"), "div": ("divide", "true_divide"),
    "mul": ("multiply",), "sub": ("subtract",), "pow": ("power",), "acos": ("arccos",),
    "asin": ("arcsin",),
}  # fmt: skip

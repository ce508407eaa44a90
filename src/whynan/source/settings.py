"""A number that a library was given: where the user's own text sets it.

A library's line says `self.smooth_dr`; its class has that from a parameter, which may have come from
a settings object under another name. These names are followed in the library's own file. Then the
user's files are searched for one of them with that very number: a keyword, an entry, a field, an
assignment, an option's default, a line of a settings file. It is told only if there is exactly one.
"""

from __future__ import annotations

import ast
import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from whynan.model import OpRecord, Setting, Site
from whynan.ops.table import row
from whynan.source.names import names_of
from whynan.source.positions import node_at
from whynan.source.trees import expression_of, last_word, tree_of

MAX_NAMES = 12
MAX_FILES = 60
MAX_BYTES = 200_000
ENDINGS = (".yaml", ".yml", ".json", ".toml")
COMMON = frozenset({"self", "x", "n", "i", "k", "a", "b", "cls", "torch", "config", "args", "math"})
UNTOLD = frozenset({"self", "other", "value", "exponent"})  # what torch calls anything
COMPUTING = (ast.BinOp, ast.Call, ast.IfExp, ast.UnaryOp)
NEAR = 3  # operations before the origin
SMALL = 1e-3
LARGE = 1e4
SCALING = ("div", "mul")
GUARDS = ("other", "eps", "min", "value", "alpha")
_ENTRY = r"\"{name}\"\s*:\s*\"?(?P<value>[-+.\w]+)"  # of JSON, which may be all on one line
_LINE = r"(?:^|[{{,])\s*[\"']?{name}[\"']?\s*[:=]\s*[\"']?(?P<value>[-+.\w]+)"


@dataclass(frozen=True, slots=True)
class Written:
    """One place where a name is given a number."""

    name: str
    file: str
    line: int
    text: str

    def told(self, value: float) -> Setting:
        return Setting(name=self.name, value=value, file=self.file, line=self.line, text=self.text)


def setting_behind(site: Site, roles: Sequence[str], value: float, files: Iterable[str], folders: Iterable[str]) -> Setting | None:  # fmt: skip
    """Where the user set the number that an operation was given at a place of the source."""
    names = _names(site, roles)
    found = {(w.file, w.line): w for name in names for w in _written(name, value, files, folders)}
    own = [w for w in found.values() if (w.file, w.line) != (site.file, site.line)]
    return own[0].told(value) if len(own) == 1 else None


def setting_named(names: Iterable[str], value: float, files: Iterable[str], folders: Iterable[str]) -> Setting | None:  # fmt: skip
    """The one place of the user's that gives one of these names that very number."""
    files, folders = [*files], [*folders]
    found = {(w.file, w.line): w for name in names for w in _written(name, value, files, folders)}
    return next(iter(found.values())).told(value) if len(found) == 1 else None


def added_names(expression: str) -> list[str]:
    """Of `np.float64(step + self.shift)`, `step` and `shift`: if it is 0, all of them may be."""
    tree: ast.expr | None = expression_of(expression)
    while isinstance(tree, ast.Call) and len(tree.args) == 1 and not tree.keywords:
        tree = tree.args[0]
    if not isinstance(tree, ast.BinOp | ast.Name | ast.Attribute | ast.Subscript):
        return []
    terms = [
        n for n in ast.walk(tree) if isinstance(n, ast.BinOp) and not isinstance(n.op, ast.Add)
    ]
    return [] if terms else [w for n in _mentioned([tree]) if (w := _word(n)) and w not in COMMON]


def lost_numbers(origin: OpRecord) -> Iterator[tuple[OpRecord, str, float]]:
    """An eps of one of its operands that came to nothing: the type rounds it to 0."""
    for op in (op for operand in origin.inputs for op in operand.upstream[:NEAR]):
        if op.value != 0 or not (op.name == "add" or "floor" in row(op.name).does):
            continue
        for name, given in op.scalars.items():
            if name in GUARDS and isinstance(given, float) and 0 < given < SMALL:
                yield op, name, given


def computed_behind(site: Site, roles: Sequence[str], files: Iterable[str]) -> Iterator[tuple[str, str, ast.expr]]:  # fmt: skip
    """Where the user gives one of its names what is computed: (name, file, expression)."""
    for file in [*files][:MAX_FILES]:
        tree = tree_of(file)
        for name in _names(site, roles):
            for _, written in _in_python(tree, name):
                if isinstance(written, COMPUTING) and _number(written) is None:
                    yield name, file, written


def odd_numbers(origin: OpRecord) -> Iterator[tuple[OpRecord, str, float]]:
    """Those that can be to blame: of the origin, and what was to keep its operands away from 0."""
    for name, given in origin.scalars.items():
        if isinstance(given, float | int) and not isinstance(given, bool) and _is_odd(name, given):
            yield origin, name, float(given)
    if origin.derived and origin.name == "pow":  # x ** n, whose slope is n * x ** (n - 1)
        exponent = origin.scalar("exponent")
        if exponent is not None and -1 < exponent < 0:
            yield origin, "exponent", exponent + 1
    told = origin.operand(row(origin.name).of)  # a divisor before what it divides
    others = [operand for operand in origin.inputs if operand is not told]
    for operand in (*([told] if told is not None else []), *others):
        for op in operand.upstream[:NEAR]:
            if op.name == "lift_fresh" and op.out is not None and op.out.count == 1 and op.value is not None:  # fmt: skip
                if _is_odd("value", op.value):
                    yield op, "value", op.value
                continue
            if "compares" in row(op.name).does:  # `ids == PAD` marks entries, and scales nothing
                continue
            for name, given in op.scalars.items():
                if not isinstance(given, float | int) or isinstance(given, bool):
                    continue
                scales = op.name in SCALING and _is_odd(name, given)
                if scales or (given == 0 and name in GUARDS and op.name not in ("pow", "mul")):
                    yield op, name, float(given)


def _is_odd(name: str, value: float) -> bool:
    if value == 0:
        return name in GUARDS
    return not SMALL <= abs(value) <= LARGE and not math.isnan(value)


def _names(site: Site, roles: Sequence[str]) -> list[str]:
    """What the number may be called, from the operation outwards."""
    node, tree = node_at(site), tree_of(site.file)
    words = dict.fromkeys(r for r in roles if len(r) > 2 and r not in UNTOLD)
    waiting = _mentioned([_given_as(node, roles)]) if node is not None else []
    seen: set[tuple[type[Word], str]] = set()  # a name may be given what is made of itself
    for part in waiting:
        word = _word(part)
        if word is None or word in COMMON or len(words) >= MAX_NAMES or (type(part), word) in seen:
            continue
        seen.add((type(part), word))
        words[word] = None
        if isinstance(part, ast.Attribute):
            waiting += _kept(tree, part.attr)
        elif isinstance(part, ast.Name):
            waiting += _given(tree, part)
    return [*words]


def _given_as(node: ast.expr, roles: Sequence[str]) -> ast.expr:
    """Of a quotient or a power, only what the number can be: the divisor, the exponent."""
    one_sided = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.Pow)
    return node.right if one_sided and set(roles) <= {"other", "exponent"} else node  # type: ignore[attr-defined] # it has sides


Word = ast.Attribute | ast.Name | ast.Subscript


def _word(node: Word) -> str | None:
    """`eps` of `config.eps` and of `config["eps"]`."""
    if isinstance(node, ast.Subscript):
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        return key if isinstance(key, str) else None
    return last_word(node)


def _mentioned(values: Iterable[ast.expr]) -> list[Word]:
    return [n for value in values for n in ast.walk(value) if isinstance(n, Word)]


def _kept(tree: ast.Module, name: str) -> list[Word]:
    """What the classes of the file give to `self.name`."""
    found: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and any(
            isinstance(t, ast.Attribute) and t.attr == name for t in node.targets
        ):
            found.append(node.value)
    return _mentioned(found)[:MAX_NAMES]


def _given(tree: ast.Module, name: ast.Name) -> list[Word]:
    """Of a parameter, what calls in the file give for it; of another name, what it is."""
    given = names_of(tree).given(name)
    found: list[ast.expr] = []
    for binding in given.sources if given is not None else ():
        if binding.how == "parameter":
            found += [k.value for k in _keywords(tree, name.id)]
        elif binding.value is not None:
            found.append(binding.value)
    return _mentioned(found[:MAX_NAMES])


def _keywords(tree: ast.Module, name: str) -> Iterator[ast.keyword]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from (k for k in node.keywords if k.arg == name)


def _written(
    name: str, value: float, files: Iterable[str], folders: Iterable[str]
) -> Iterator[Written]:
    for file in [*files][:MAX_FILES]:
        tree = tree_of(file)
        for place, written in _in_python(tree, name):
            given = _constant(written, tree)
            line = place if given is written else given.lineno
            if _same(given, value):
                yield Written(name, file, line, f"{name}={ast.unparse(given)}")
    for file in _settings_files(folders):
        yield from _in_settings(file, name, value)


def _in_python(tree: ast.Module, name: str) -> Iterator[tuple[int, ast.expr]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from ((k.value.lineno, k.value) for k in node.keywords if k.arg == name)
            option = node.args[0] if node.args else None
            text = option.value if isinstance(option, ast.Constant) else None
            if isinstance(text, str) and text.lstrip("-").replace("-", "_") == name:
                yield from ((k.value.lineno, k.value) for k in node.keywords if k.arg == "default")
        elif isinstance(node, ast.Dict):
            for key, given in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == name:
                    yield given.lineno, given
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                key = target.slice if isinstance(target, ast.Subscript) else None
                entry = key.value if isinstance(key, ast.Constant) else None
                if name in (entry, last_word(target)):
                    yield node.value.lineno, node.value
        elif isinstance(node, ast.AnnAssign) and last_word(node.target) == name and node.value:
            yield node.value.lineno, node.value


def _constant(node: ast.expr, tree: ast.Module) -> ast.expr:
    """What a name stands for, if it is given a value in one place."""
    binding = names_of(tree).given(node) if isinstance(node, ast.Name) else None
    sources = binding.sources if binding is not None else ()
    value = sources[0].value if len(sources) == 1 and sources[0].how == "is" else None
    return node if value is None else value


def _same(node: ast.expr, value: float) -> bool:
    number = _number(node)
    return number is not None and _equal(number, value)


def _number(node: ast.expr) -> float | None:
    """A literal, also `-1e-5`, `1 / 8`, `float("inf")`, `math.inf`."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return float(node.value)  # type: ignore[arg-type] # just tested
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _number(node.operand)
        return None if inner is None else -inner
    if isinstance(node, ast.Attribute) and node.attr == "inf":
        return math.inf
    if isinstance(node, ast.Call) and last_word(node.func) == "float" and len(node.args) == 1:
        given = node.args[0]
        return _text(given.value) if isinstance(given, ast.Constant) else None
    return None


def _text(value: object) -> float | None:
    try:
        return float(str(value).lstrip("."))
    except ValueError:
        return None


def _equal(one: float, other: float) -> bool:
    """Also after a type of 32 bits has rounded it."""
    return one == other or math.isclose(one, other, rel_tol=1e-6)


def _settings_files(folders: Iterable[str]) -> list[str]:
    found: list[str] = []
    for folder in folders:
        for place in (folder, *(os.path.join(folder, n) for n in ("conf", "config", "configs"))):
            try:
                names = sorted(os.listdir(place))
            except OSError:
                continue
            found += [os.path.join(place, n) for n in names if n.endswith(ENDINGS)]
    small = [f for f in dict.fromkeys(found) if os.path.getsize(f) <= MAX_BYTES]
    return small[:MAX_FILES]


def _in_settings(file: str, name: str, value: float) -> Iterator[Written]:
    form = _ENTRY if file.endswith(".json") else _LINE
    line_of = re.compile(form.format(name=re.escape(name)))
    try:
        with open(file, encoding="utf-8") as stream:
            lines = stream.read().splitlines()
    except (OSError, UnicodeDecodeError):
        return
    for i, line in enumerate(lines, 1):
        for match in line_of.finditer(line):
            number = _text(match["value"])
            if number is not None and _equal(number, value):
                yield Written(name, file, i, match[0].lstrip("{, ").strip())

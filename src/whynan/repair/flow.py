"""Where a probability goes, through variables, returns, calls and modules: the uses at the end."""

from __future__ import annotations

from dataclasses import dataclass, field

import libcst as cst

from whynan.ops.table import spelled
from whynan.repair.calls import Fn, fn, one_minus
from whynan.repair.containers import Container, Entry, entry_of
from whynan.repair.places import Lost, Place, argument_for, reads_of, target_of
from whynan.repair.project import Project
from whynan.repair.renames import Holder, holder
from whynan.repair.source import Expression, Source

METADATA = frozenset({"shape", "size", "dtype", "device", "dim", "ndim", "numel"})
# They choose or rearrange elements of one tensor, and compute nothing.
SAME_ELEMENTS = spelled(
    lambda op: (
        "keeps" in op.does and op.reads in ("view", "lookup", "move") and not op.does & {"splits"}
    )
)
ENTROPIES = {"binary_cross_entropy": "binary_cross_entropy_with_logits"}
CRITERIA = {"BCELoss": "BCEWithLogitsLoss"}


@dataclass(frozen=True)
class Log:
    """A use under a logarithm, perhaps with a choice of elements or `1 - p` in between."""

    place: Place  # the probability
    call: Fn
    complement: bool  # of `1 - p`


@dataclass(frozen=True)
class Chosen:
    """Elements of the probability under a name of their own, whose logarithm is taken later."""

    place: Place  # the probability from which they are chosen
    logs: tuple[Log, ...]
    others: tuple[Place, ...]  # uses that need the probability itself
    holders: tuple[Holder, ...]  # names that they go by


@dataclass
class Flow:
    """All uses of one value; those that are not under a logarithm need the value itself."""

    project: Project
    elementwise: bool  # as sigmoid, unlike softmax: choosing elements and `1 - p` come to the same
    closed: frozenset[cst.CSTNode] = frozenset()  # functions that are also given other things
    logs: list[Log] = field(default_factory=list)
    chosen: list[Chosen] = field(default_factory=list)
    entropies: list[Place] = field(default_factory=list)  # calls of binary_cross_entropy
    runs: list[Place] = field(default_factory=list)  # of `nn.BCELoss`
    criteria: dict[cst.CSTNode, Place] = field(default_factory=dict)  # `nn.BCELoss` to be renamed
    others: list[Place] = field(default_factory=list)
    holders: list[Holder] = field(default_factory=list)  # names that it goes by
    functions: list[Place] = field(default_factory=list)  # that return it
    # Entries, where their name is written.
    keys: dict[str, set[cst.CSTNode]] = field(default_factory=dict)
    crossed: bool = False  # it left the function where it was made
    _seen: set[cst.CSTNode] = field(default_factory=set)
    _parameters: list[tuple[Place, int, str]] = field(default_factory=list)

    def follow(self, source: Source, node: Expression) -> None:
        if node in self._seen:
            return
        self._seen.add(node)
        above = source.parent(node)
        if isinstance(above, cst.Return):
            self._returned(source, above)
        elif isinstance(above, cst.Assign) and above.value is node:
            self._assigned(source, node, above.targets[0].target, alone=len(above.targets) == 1)
        elif isinstance(above, cst.Element) and (statement := _return_of(source, above)):
            self._returned(source, *statement)
        elif isinstance(above, cst.Element) and (target := target_of(source, above)) is not None:
            self._assigned(source, node, target)
        elif (entry := entry_of(self.project, source, node)) is not None:
            self._kept(entry)
        elif isinstance(above, cst.Arg) and self._given(source, above):
            pass
        elif self.elementwise and (chosen := _choice(source, node)) is not None:
            self.follow(source, chosen)
        else:
            self._used(source, node)

    def strangers(self) -> list[tuple[cst.CSTNode, Place | None]]:
        """Functions that were entered, and what some call gives them that is another value."""
        found = list[tuple[cst.CSTNode, Place | None]]()
        for function, skipped, name in self._parameters:
            for call in self.project.calls_of(function):
                given = argument_for(call, function, skipped, name)
                if given not in self._seen:
                    found.append((function.node, Place(call.source, given) if given else None))
        return found

    def _returned(self, source: Source, statement: cst.Return, index: int | None = None) -> None:
        calls = self.project.callers(source, statement)
        self.crossed = True
        self.functions.append(Place(source, source.scope(statement)))
        for call in calls:
            assert isinstance(call.node, cst.Call)
            if index is None:
                self.follow(call.source, call.node)
            else:
                self._unpacked(call.source, call.node, index)

    def _unpacked(self, source: Source, call: cst.Call, index: int) -> None:
        """One of several values that a function returns: `a, b = f(x)`, `f(x)[0]`."""
        above = source.parent(call)
        if isinstance(above, cst.Assign) and len(above.targets) == 1:
            targets = above.targets[0].target
            one = targets.elements[index].value if isinstance(targets, cst.Tuple) and index < len(targets.elements) else None  # fmt: skip
            if not isinstance(one, cst.Name):
                raise Lost
            for read in reads_of(source, one):
                assert isinstance(read.node, cst.Name)
                self.follow(source, read.node)
            self._held(source, one)
        elif isinstance(above, cst.Subscript) and above.value is call:
            code = source.code(above)[len(source.code(call)) :]
            if not code.strip("[]").isdigit():
                raise Lost
            if int(code.strip("[]")) == index:
                self.follow(source, above)
        elif not isinstance(above, cst.Expr):
            raise Lost

    def _assigned(
        self, source: Source, node: Expression, target: cst.CSTNode, *, alone: bool = True
    ) -> None:
        try:
            if not alone or not isinstance(target, cst.Name):
                raise Lost
            reads = reads_of(source, target)
        except Lost:
            self.others.append(Place(source, node))
            return
        self._held(source, target)
        for read in reads:
            assert isinstance(read.node, cst.Name)
            self.follow(source, read.node)

    def _kept(self, entry: Entry) -> None:
        """In a dictionary that a function returns, or the like: on from wherever it is read."""
        self.crossed = True
        container = Container(self.project, entry.name)
        reads = container.reads(entry)
        self.keys.setdefault(entry.name, set()).update(key.node for key in container.keys)
        for read in reads:
            assert isinstance(read.node, Expression)
            self.follow(read.source, read.node)

    def _held(self, source: Source, name: cst.Name) -> None:
        found = holder(Place(source, name))
        self.holders += [found] if found is not None else []

    def _given(self, source: Source, arg: cst.Arg) -> bool:
        """Into a function of the user's own, or a loss of torch's that knows logits."""
        call = source.parent(arg)
        if not isinstance(call, cst.Call):
            return False
        known = fn(source, call)
        if known is not None and known.name in ENTROPIES and known.operand is arg.value:
            self.entropies.append(Place(source, call))
            return True
        if call.args and call.args[0] is arg and self._criterion(source, call):
            return True
        found = self.project.handed(source, arg)
        if found is None or found[0].node in self.closed:
            return False
        function, skipped, name = found
        try:
            reads = reads_of(function.source, name)
            self.project.calls_of(function)
        except Lost:
            return False
        self.crossed = True
        self._parameters.append((function, skipped, name.value))
        self._held(function.source, name)
        for read in reads:
            assert isinstance(read.node, cst.Name)
            self.follow(function.source, read.node)
        return True

    def _criterion(self, source: Source, call: cst.Call) -> bool:
        """`criterion(p, y)` of `criterion = nn.BCELoss()` that is called once."""
        name = call.func.attr.value if isinstance(call.func, cst.Attribute) else None
        name = call.func.value if isinstance(call.func, cst.Name) else name
        if name is None:
            return False
        made = [
            Place(other, value.func)
            for other in self.project.mentioning(name)
            for assign in other.every(cst.Assign)
            if isinstance(value := assign.value, cst.Call)
            and other.code(value.func).split(".")[-1] in CRITERIA
            and other.code(assign.targets[0].target).split(".")[-1] == name
        ]
        runs = [
            c
            for other in self.project.mentioning(name)
            for c in other.every(cst.Call)
            if other.code(c.func).split(".")[-1] == name
        ]
        if len(made) != 1 or len(runs) != 1:
            return False
        self.criteria[made[0].node] = made[0]
        self.runs.append(Place(source, call))
        return True

    def _used(self, source: Source, node: Expression) -> None:
        above = source.parent(node)
        if isinstance(above, cst.Attribute) and above.attr.value in METADATA:
            return
        place, complement, top = Place(source, node), False, node
        while True:
            call = _log_of(source, top)
            if call is not None:
                self.logs.append(Log(place, call, complement))
                return
            above = source.parent(top)
            if self.elementwise and not complement and one_minus(above) is top:
                assert isinstance(above, Expression)
                top, complement = above, True
                continue
            chosen = None if complement else _choice(source, top)
            if chosen is None:
                if top is node or not self._chosen(place, top):
                    self.others.append(place)
                return
            top = chosen

    def _chosen(self, place: Place, top: Expression) -> bool:
        """Whether what was chosen goes on to a logarithm; from there on, elements stay elements."""
        later = Flow(self.project, elementwise=True, closed=self.closed)
        later.follow(place.source, top)
        logs = tuple(log for log in later.logs if not log.complement)
        if not logs or later.entropies or later.runs:
            return False
        complements = [log.place for log in later.logs if log.complement]
        self.chosen.append(Chosen(place, logs, (*later.others, *complements), tuple(later.holders)))
        self.crossed |= later.crossed
        self.functions += later.functions
        self._seen |= later._seen
        self._parameters += later._parameters
        return True


def _return_of(source: Source, element: cst.Element) -> tuple[cst.Return, int] | None:
    """`return a, b`, and which of them."""
    values = source.parent(element)
    statement = source.parent(values) if isinstance(values, cst.Tuple) else None
    if not isinstance(statement, cst.Return) or not isinstance(values, cst.Tuple):
        return None
    return statement, values.elements.index(element)


def _log_of(source: Source, node: Expression) -> Fn | None:
    """The logarithm whose operand this is."""
    above = source.parent(node)
    call = source.parent(above) if isinstance(above, (cst.Arg, cst.Attribute)) else None
    found = fn(source, call)
    if found is None or found.name != "log" or found.inplace or found.operand is not node:
        return None
    return found


def _choice(source: Source, node: Expression) -> Expression | None:
    """`p[rows, y]`, `p.gather(1, y)`, `p.squeeze(1)`: the same values, fewer or elsewhere."""
    above = source.parent(node)
    if isinstance(above, cst.Subscript) and above.value is node:
        return above
    if isinstance(above, cst.Attribute):
        call = source.parent(above)
        if isinstance(call, cst.Call) and call.func is above and above.attr.value in SAME_ELEMENTS:
            return call
    found = fn(source, source.parent(above)) if isinstance(above, cst.Arg) else None
    if found is not None and found.operand is node and found.name in SAME_ELEMENTS:
        return found.node  # `torch.gather(p, 1, y)`
    return None

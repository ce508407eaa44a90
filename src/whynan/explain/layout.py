"""Where in the model it happened: the modules that are known, as a tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from whynan.explain.stages import Stage
from whynan.model import HistoryRow

MOST = 150


@dataclass(slots=True, kw_only=True)
class Branch:
    """One module and those inside it."""

    name: str
    path: str
    lit: bool = False  # the origin is in it
    on: bool = False  # something of the chain is in it
    notes: list[str] = field(default_factory=list)
    inside: dict[str, Branch] = field(default_factory=dict)


def tree_of(stages: Sequence[Stage], history: Sequence[HistoryRow]) -> Branch | None:
    """Modules of every stage and of every measured parameter; None when there is none."""
    origin = next((s.module for s in stages if s.role == "origin"), None)
    known = [s.module for s in stages if s.module]
    known += [name.rpartition(".")[0] for row in history if row.layers for name in row.layers]
    names = list(dict.fromkeys(name for name in known if name))[:MOST]
    if not names:
        return None
    top = _outermost(names)
    root = Branch(name=top or "model", path="")
    for name in _in_model_order(names, history):
        _find(root, name, top)
    for branch in _way(root, origin, top) if origin else ():
        branch.lit = True
    for stage in stages:
        if stage.module and not stage.aside:
            words = "origin" if stage.role == "origin" else f"{stage.op} {stage.shown}".strip()
            branch = _find(root, stage.module, top)
            if words not in branch.notes:
                branch.notes.append(words)
            for passed in _way(root, stage.module, top):
                passed.on = True
    return root


def _outermost(names: list[str]) -> str | None:
    """Modules go by their path, but the outermost by its class; a loss stands beside it."""
    classes = [n for n in names if n[0].isupper() and "." not in n and not n.endswith("Loss")]
    return classes[0] if len(classes) == 1 else None


def _in_model_order(names: list[str], history: Sequence[HistoryRow]) -> Iterable[str]:
    """Parameters come in the order of the model; modules without any come after."""
    layers = next((row.layers for row in history if row.layers), {})
    order = {name.rpartition(".")[0]: place for place, name in enumerate(layers)}
    return sorted(names, key=lambda name: order.get(name, len(order)))


def _find(branch: Branch, name: str, top: str | None) -> Branch:
    """The branch of that name, made when there is none yet."""
    for part in () if name == top else name.split("."):
        path = f"{branch.path}.{part}".lstrip(".")
        branch = branch.inside.setdefault(part, Branch(name=part, path=path))
    return branch


def _way(branch: Branch, name: str, top: str | None) -> Iterator[Branch]:
    yield branch
    for part in () if name == top else name.split("."):
        branch = branch.inside[part]
        yield branch

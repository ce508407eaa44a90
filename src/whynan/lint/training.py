"""Whether anything says that a gradient flows through a place: else what only spoils gradients is no more than `info`."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from whynan.source.trees import Function, last_word

if TYPE_CHECKING:
    from whynan.lint.finding import Severity
    from whynan.lint.flow import Walker

# What people call that which is differentiated.
NAMED = re.compile(
    r"loss|criterion|objective|penalty|regulari[sz]|entropy|diverg|likelihood|train|forward|closure|backward"
    r"|learn|update_|energy|contrast|(^|_)kl(_|d|$)|elbo|nll|mse",
    re.I,
)
LOSS = re.compile(
    r"loss|criterion|objective|penalty|regulari[sz]|elbo|entropy|nll|(^|_)kl(_|d|$)|bce|diverg|likelihood|masked_mean",
    re.I,
)
# And what is done to data before, or with a result afterwards.
UNTRAINED = re.compile(
    r"pre_?process|post_?process|collate|augment|_wav|(roi|map)_l(e)?ve?ls?|targets?$|^_?(get|build|prepare|assign|encode|make)_\w*targets?|^_?(eval|test|valid(ate)?|detect|infer|predict|sample|gen|generate|decode|plot|log|step)(_|$)",
    re.I,
)
# Classes that transform, match or cost what nobody differentiates.
ASIDE = re.compile(
    r"stft|griffin|augment|match|cost$|transform$|dataset|sampler|assign|coder$", re.I
)
FILES = re.compile(r"loss|criterion|objective|regulari[sz]|(^|[/_-])(train|learner)[^/]*$", re.I)


def trains(here: Walker) -> bool:
    """A module's method, a loss, a step of training, or what one of these calls in the same file."""
    own, function = here.reader.own_class, here.function
    if function is not None and (UNTRAINED.search(function.name) or here.no_grad):
        return False
    if function is None:
        return "backward(" in here.source.text or "grad(" in here.source.text
    if function is not None and (function.name == "__init__" or (own and ASIDE.search(own.name))):
        return False
    if own is not None and (own.is_module or NAMED.search(own.name)):
        return True
    if NAMED.search(function.name) or FILES.search(here.source.path):
        return True
    if ".backward(" in here.body or here.part is None:
        return True
    return function.name in called_where_trained(here) or short(here)


def computes_loss(here: Walker) -> bool:
    """What is computed here is what the training makes small, as far as the names say."""
    function, own = here.function, here.reader.own_class
    named = f"{function.name if function is not None else ''} {own.name if own is not None else ''}"
    return bool(LOSS.search(named) or FILES.search(here.source.path)) or ".backward(" in here.body


def of_eps(here: Walker) -> Severity:
    """How bad an eps is that stops a gradient: outside of a loss it is a bound that was wanted."""
    return "warning" if computes_loss(here) else "info"


def short(here: Walker) -> bool:
    """A file that is next to nothing but this function: all is said there, and nothing against it."""
    body = [s for s in here.source.tree.body if not isinstance(s, ast.Import | ast.ImportFrom)]
    return len(body) <= 1


def called_where_trained(here: Walker) -> frozenset[str]:
    """Names that modules, losses and steps of training call in this file."""
    if here.evidence.called is None:
        found: set[str] = set()
        for node in here.source.tree.body:
            if _is_trained(node, here):
                calls = (n for n in ast.walk(node) if isinstance(n, ast.Call))
                found |= {last_word(call.func) or "" for call in calls}
        here.evidence.called = frozenset(found)
    return here.evidence.called


def _is_trained(node: ast.stmt, here: Walker) -> bool:
    if isinstance(node, ast.ClassDef):
        info = here.reader.classes.get(node.name)
        return bool(NAMED.search(node.name)) or (info is not None and info.is_module)
    if isinstance(node, Function):
        return bool(NAMED.search(node.name)) or any(
            isinstance(n, ast.Attribute) and n.attr == "backward" for n in ast.walk(node)
        )
    return False

"""The table of operations is complete, agrees with torch and NumPy, and is the only one."""

from __future__ import annotations

import ast
import math
from collections import Counter
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch

import whynan
from tests.builders import origin
from whynan.diagnosis.engine import explain_evidence
from whynan.diagnosis.registry import rules
from whynan.lint.checker import Checker
from whynan.lint.spelling import KNOWN, split
from whynan.lint.table import patterns
from whynan.model import Anomaly, Evidence, Operand, Site, TensorStats
from whynan.ops.op import Does, Op, Reads
from whynan.ops.table import TABLE, forward_of, kernel, row
from whynan.repair.case import Case
from whynan.repair.rewrites import propose

SOURCE = Path(whynan.__file__).parent
OF_TORCH = {s.name.removeprefix("aten::").rstrip("_") for s in torch._C._jit_get_all_schemas()}
WITH_DOMAIN = [op for op in TABLE if op.domain is not None]
# How a person writes it, where the operand is not all there is to say.
WRITTEN = {
    "pow": "torch.pow(x, 0.5)",
    "mvlgamma": "torch.mvlgamma(x, 1)",
    "polygamma": "torch.polygamma(1, x)",
    "addcdiv": "torch.addcdiv(y, y, x)",
    "multinomial": "torch.multinomial(x, 1)",
    "solve": "torch.linalg.solve(x, y)",
    "factored": "torch.cholesky_solve(y, x)",
}


def ids(op: Op) -> str:
    return op.name


def why(op: Op, what: str) -> str:
    return (op.lacks or {}).get(what, "")


def test_no_spelling_stands_in_two_rows() -> None:
    said = Counter(name for op in TABLE for name in {*op.spellings, *op.backward})
    assert not [name for name, times in said.items() if times > 1]
    assert not [n for n, times in Counter(n for op in TABLE for n in op.modules).items() if times > 1]  # fmt: skip


@pytest.mark.parametrize("op", TABLE, ids=ids)
def test_words_are_those_of_the_table(op: Op) -> None:
    assert op.does <= set(get_args(Does))
    assert {op.reads, op.reads_back} <= set(get_args(Reads))
    assert op.fails <= {rule.mechanism for rule in rules()}
    assert set(op.lacks or ()) <= {"rule", "lint", "fix", "numpy"}
    assert not op.slope or op.domain is not None


@pytest.mark.parametrize("op", TABLE, ids=ids)
def test_torch_and_numpy_have_what_the_table_says(op: Op) -> None:
    assert not {*op.aten, *op.backward} - OF_TORCH
    homes = (np, np.linalg, np.ndarray)
    assert not [name for name in op.numpy if not any(hasattr(home, name) for home in homes)]
    assert not [name for name in op.modules if not hasattr(torch.nn, name)]


def test_every_kernel_of_attention_is_known() -> None:
    chooses = {"_fused_sdp_choice"}
    kernels = {n for n in OF_TORCH if "attention" in n or "_sdp_" in n} - chooses
    assert {row(n).name or kernel(n)[0].name for n in kernels} <= {
        "attention", "packed_attention", "cudnn_attention", "multi_head_attention",
    }  # fmt: skip


# ---- what is undefined somewhere has a rule, a spelling in lint, a fix and a NumPy name --------


def outside(op: Op) -> float:
    """A number at which the operation fails; any will do for a matrix."""
    assert op.domain is not None
    tried = (-2.0, 0.0, -1.0, 2.0)
    return next((x for x in tried if x not in op.domain), 0.0)


def test_outside_is_where_torch_gives_no_finite_number() -> None:
    for op in WITH_DOMAIN:
        if op.reads == "elementwise" and op.name not in WRITTEN:
            function = getattr(torch.ops.aten, op.aten[0])
            x = torch.tensor(outside(op))
            value = function(x) if op.place == 0 else function(torch.tensor(1.0), x)
            safe = torch.tensor(op.harmless)
            inside = function(safe) if op.place == 0 else function(torch.tensor(1.0), safe)
            assert not value.isfinite(), op.name
            assert inside.isfinite(), op.name


@pytest.mark.parametrize("op", [op for op in WITH_DOMAIN if op.reads == "elementwise"], ids=ids)
def test_slopes_are_infinite_where_the_table_says(op: Op) -> None:
    if op.name in (*WRITTEN, "floor_divide", "remainder", "fmod"):
        return
    function = getattr(torch.ops.aten, op.aten[0])
    for point in (*op.singular, op.harmless):
        x = torch.tensor(float(point), requires_grad=True)
        value = function(x) if op.place == 0 else function(torch.tensor(1.0), x)
        value.backward()
        assert x.grad is not None
        assert bool(x.grad.isfinite()) == (point not in op.singular), point


def anomaly(op: Op, path: Path, *, derived: bool) -> Anomaly:
    """As if the program's one line had failed."""
    call = WRITTEN.get(op.name) or written(op)
    path.write_text(f"import torch\nx, y = load()\nz = {call}\nz.sum().backward()\n")
    stats = TensorStats(shape=(3, 3), dtype="float32", min=-2.0, max=2.0, zeros=1, negatives=1)
    bad, other = outside(op), Operand(role="exponent", stats=None, value=0.5)
    inputs = (Operand(role=op.of, stats=stats, index=(0, 0), value=bad), other)
    site = Site(
        file=str(path), line=3, end_line=3, column=4, end_column=4 + len(call), function="<module>",
        source=f"z = {call}", expression=call,
    )  # fmt: skip
    node = "".join(part.title() for part in op.aten[0].split("_")) + "Backward0"
    failed = -math.inf if op.name == "logdet" else math.nan
    record = origin(
        op=f"aten.{op.aten[0]}.default", inputs=inputs, site=site, scalars={},
        outputs=(Operand(role="out", stats=None, value=failed, dtype="float32"),),
        derived=derived, node=node if derived else None,
    )  # fmt: skip
    evidence = Evidence(sink="loss", subject="loss", step=0, origin=record, origin_kind="operation")
    return explain_evidence(evidence)


def written(op: Op) -> str:
    homes = {"torch": torch, "torch.special": torch.special, "torch.linalg": torch.linalg}
    name, home = next((n, h) for n in (op.name, *op.also) for h in homes if hasattr(homes[h], n))
    return f"{home}.{name}({'x' if op.place == 0 else 'y, x'})"


@pytest.mark.parametrize("op", WITH_DOMAIN, ids=ids)
def test_a_rule_explains_it(op: Op, tmp_path: Path) -> None:
    finding = anomaly(op, tmp_path / "program.py", derived=False).finding
    assert (finding.mechanism in op.fails) != bool(why(op, "rule"))


@pytest.mark.parametrize("op", WITH_DOMAIN, ids=ids)
def test_lint_knows_every_spelling(op: Op) -> None:
    for name in (op.name, *op.also):
        assert split(f"torch.{name}") == ("torch", op.name)
        assert op.name in KNOWN
    for name in op.numpy:
        assert split(f"numpy.{name}") == ("numpy", op.name)


@pytest.mark.parametrize("op", [op for op in WITH_DOMAIN if op.reads == "elementwise"], ids=ids)
def test_lint_warns_of_its_slope_behind_a_where(op: Op) -> None:
    call = WRITTEN.get(op.name) or written(op)
    end = 0 if 0 in op.singular else max(op.singular, default=op.harmless)
    text = f"import torch\n\n\ndef f(x, y):\n    return torch.where(x > {end}, {call}, 0.0)\n"
    found = {f.slug for f in Checker(patterns()).check(text, "program.py")}
    natural = any(point >= 0 for point in op.singular)  # nobody's data are -1 by chance
    assert ("where-unsafe" in found) == (natural and not why(op, "lint"))


@pytest.mark.parametrize("op", WITH_DOMAIN, ids=ids)
def test_a_fix_is_proposed_for_it(op: Op, tmp_path: Path) -> None:
    found: list[Any] = []
    for derived in (False, True):
        failed = anomaly(op, tmp_path / "program.py", derived=derived)
        found += [c for c in propose(Case(failed, root=str(tmp_path))) if c.tier < 2]
    assert bool(found) != bool(why(op, "fix"))


@pytest.mark.parametrize("op", WITH_DOMAIN, ids=ids)
def test_numpy_has_a_name_for_it(op: Op) -> None:
    assert bool(op.numpy) != bool(why(op, "numpy"))


# ---- torch calls nodes after operators ---------------------------------------------------------


@pytest.mark.parametrize("op", [op for op in TABLE if op.singular and op.place == 0], ids=ids)
def test_a_node_leads_to_its_operation(op: Op) -> None:
    x = torch.full((2,), op.harmless, requires_grad=True)
    function = getattr(torch.ops.aten, op.aten[0])
    more = {"pow": (0.5,), "mvlgamma": (1,)}.get(op.name, ())
    node = function(1, x) if op.name == "polygamma" else function(x, *more)
    assert row(forward_of(node.grad_fn.name())).name in (
        op.name,
        "lgamma",
    )  # mvlgamma is made of it


# ---- and nothing else holds such a table -------------------------------------------------------

# Words that only look like operations.
ELSEWHERE = {
    ("lint/reader.py", "enumerate"): "Python's own functions",
    ("checking/file_text.py", "troubles"): "columns of a report",
    ("stable/__init__.py", "safe_div"): "whynan's own functions",
    ("lint/rewrite.py", "log_softmax"): "which functions are methods, too",
    ("repair/first.py", "log_space"): "kinds of help, some of which are called like operations",
    ("diagnosis/by_change.py", "log_space"): "the same",
    ("record/relations.py", "elementwise"): "kinds of the table, which share words with operations",
}


def collections_in(tree: ast.AST) -> list[tuple[int, list[str]]]:
    found = []
    for node in ast.walk(tree):
        sides: list[list[Any]] = []
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            sides = [list(node.elts)]
        elif isinstance(node, ast.Dict):
            sides = [list(node.keys), list(node.values)]
        for side in sides:
            constants = [part.value for part in side if isinstance(part, ast.Constant)]
            found.append(
                (getattr(node, "lineno", 0), [word for word in constants if isinstance(word, str)])
            )
    return found


@pytest.mark.parametrize(
    "path",
    [p for p in sorted(SOURCE.rglob("*.py")) if p.relative_to(SOURCE).parts[0] != "ops"],
    ids=lambda p: str(p.relative_to(SOURCE)),
)
def test_no_other_module_lists_operations(path: Path) -> None:
    place = str(path.relative_to(SOURCE))
    for line, words in collections_in(ast.parse(path.read_text())):
        if any((place, word) in ELSEWHERE for word in words):
            continue
        names = {row(w.removeprefix("aten.").rstrip("_")).name for w in words} - {""}
        assert len(names) < 4, f"{place}:{line} knows {sorted(names)}; the table should"

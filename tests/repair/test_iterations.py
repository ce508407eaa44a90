"""Products that a loop carries from step to step: their logarithms are carried instead.

The step that fails is not the first, so that the losses before it show the same mathematics.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.repair.bundles import advice, unpacked, verified
from tests.repair.forked import RepairServer

FORWARD = """
import torch

torch.manual_seed(0)
rows, signs = torch.randn(3, 3, requires_grad=True), torch.randn(3, 5, requires_grad=True)
optimizer = torch.optim.SGD([rows, signs], lr=0.01)


def likelihood(seen, A, B, start):
{body}


for step in range(4):
    seen = torch.randint(0, 5, (150 if step == 2 else 6,))
    loss = -likelihood(seen, rows.softmax(dim=1), signs.softmax(dim=1), torch.tensor([0.5, 0.3, 0.2]))
    LOOP
"""
SINKHORN = """
import torch

torch.manual_seed(0)
points = torch.randn(6, 2, requires_grad=True)
optimizer = torch.optim.SGD([points], lr=0.01)
for step in range(4):
    cost = torch.cdist(points, torch.rand(5, 2) + (60 if step == 2 else 0))
    a, b = torch.full((6,), 1 / 6), torch.full((5,), 0.2)
    K = torch.exp(-cost / 0.5)  # the kernel
    v = torch.ones_like(b)
    for _ in range(5):
        u = a / (K @ v)
        v = b / (K.T @ u)
    plan = {plan}
    loss = (plan * cost).sum()
    LOOP
"""
SCALED = [
    "    log_v = torch.zeros_like(b)",
    "    log_a = a.log()",
    "    log_K = -cost / 0.5",
    "    log_b = b.log()",
    "        log_u = log_a - torch.logsumexp(log_K + log_v, dim=-1)",
    "        log_v = log_b - torch.logsumexp(log_K.T + log_u, dim=-1)",
    "    plan = torch.exp(log_u[:, None] + log_K + log_v[None, :])",
]
FORMS = {
    "a row vector times the transitions": (
        FORWARD.format(
            body="""
    alpha = start * B[:, seen[0]]
    for t in range(1, len(seen)):
        alpha = (alpha @ A) * B[:, seen[t]]
    return torch.log(alpha.sum())
""".strip("\n")
        ),
        [
            "def likelihood(seen, A_logits, B_logits, start):",
            "    log_start = start.log()",
            "    log_B = torch.log_softmax(B_logits, dim=1)",
            "    log_alpha = log_start + log_B[:, seen[0]]",
            "    log_A = torch.log_softmax(A_logits, dim=1)",
            "        log_alpha = torch.logsumexp(log_alpha.unsqueeze(-1) + log_A, dim=-2) + log_B[:, seen[t]]",
            "    return torch.logsumexp(log_alpha, dim=0)",
            "    loss = -likelihood(seen, rows, signs, torch.tensor([0.5, 0.3, 0.2]))",
        ],
    ),
    "sums by hand, in two lines": (
        FORWARD.format(
            body="""
    alpha = start * B[:, seen[0]]
    for o in seen[1:]:
        moved = (alpha[:, None] * A).sum(dim=0)
        alpha = moved * B[:, o]
    return alpha.sum(dim=0).log()
""".strip("\n")
        ),
        [
            "def likelihood(seen, A_logits, B_logits, start):",
            "    log_start = start.log()",
            "    log_B = torch.log_softmax(B_logits, dim=1)",
            "    log_alpha = log_start + log_B[:, seen[0]]",
            "    log_A = torch.log_softmax(A_logits, dim=1)",
            "        log_moved = torch.logsumexp(log_alpha[:, None] + log_A, dim=0)",
            "        log_alpha = log_moved + log_B[:, o]",
            "    return torch.logsumexp(log_alpha, dim=0)",
            "    loss = -likelihood(seen, rows, signs, torch.tensor([0.5, 0.3, 0.2]))",
        ],
    ),
    "a likelihood multiplied in place": (
        FORWARD.format(
            body="""
    p = torch.ones(())
    for o in seen:
        p *= B[0, o]
    return p.log()
""".strip("\n")
        ),
        [
            "def likelihood(seen, A, B_logits, start):",
            "    log_p = torch.zeros(())",
            "    log_B = torch.log_softmax(B_logits, dim=1)",
            "        log_p = log_p + log_B[0, o]",
            "    return log_p",
            "    loss = -likelihood(seen, rows.softmax(dim=1), signs, torch.tensor([0.5, 0.3, 0.2]))",
        ],
    ),
    "the scalings of a transport plan": (SINKHORN.format(plan="u[:, None] * K * v[None, :]"), SCALED),
    "the plan as a product of matrices": (
        SINKHORN.format(plan="torch.diag(u) @ K @ torch.diag(v)"),
        SCALED,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_the_logarithms_are_carried(repairs: RepairServer, tmp_path: Path, name: str) -> None:
    text, lines = FORMS[name]
    assert verified(repairs.fix(unpacked(tmp_path, text))) == ("log_domain", lines)


def test_what_is_also_written_in_a_branch_stays(repairs: RepairServer, tmp_path: Path) -> None:
    """Then only a sentence says how; a floor under the sums would be another plan."""
    text = SINKHORN.format(plan="u[:, None] * K * v[None, :]")
    text = text.replace("    plan =", "    if step > 5:\n        v = v.clone()\n    plan =")
    found = repairs.fix(unpacked(tmp_path, text))
    assert verified(found) == (None, [])
    assert "Iterate on the logarithms" in advice(found)

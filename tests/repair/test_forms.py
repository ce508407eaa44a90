"""Exact forms that an expert would write: sums and masks in log space, ceilings, scales, options."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.repair.bundles import unpacked, verified
from tests.repair.forked import RepairServer

START = """
import math
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
net = nn.Linear({shape}){half}
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
"""


def start(shape: str, half: str = "") -> str:
    return START.format(shape=shape, half=half)


PROGRAMS = {
    "a positive beside its negatives": (
        start("6, 4")
        + """
keys = F.normalize(torch.randn(12, 4), dim=1)
for step in range(3):
    q = F.normalize(net(torch.randn(5, 6)), dim=1)
    near = torch.exp((q * keys[:5]).sum(1) / 0.005)
    far = torch.exp(q @ keys.T / 0.005).sum(1)
    loss = -torch.log(near / (near + far)).mean()
    LOOP
""",
        "log_space",
        [
            "    near = (q * keys[:5]).sum(1) / 0.005",
            "    loss = -(near - torch.logaddexp(near, torch.logsumexp(q @ keys.T / 0.005, 1))).mean()",
        ],
    ),
    "all but the own one": (
        start("6, 4")
        + """
for step in range(3):
    z = F.normalize(net(torch.randn(8, 6)), dim=1)
    sim = z @ z.T / 0.006
    e = torch.exp(sim)
    loss = (torch.log(e.sum(1) - e.diag()) - sim.roll(1, 0).diag()).mean()
    LOOP
""",
        "logsumexp",
        [
            "    loss = (torch.logsumexp(sim.masked_fill(torch.eye(len(sim), dtype=torch.bool, device=sim.device), -torch.inf), 1) - sim.roll(1, 0).diag()).mean()"
        ],
    ),
    "the own one by a mask": (
        start("6, 4")
        + """
others = 1 - torch.eye(8)
for step in range(3):
    z = F.normalize(net(torch.randn(8, 6)), dim=1)
    sim = z @ z.T / 0.006
    loss = (torch.log((torch.exp(sim) * others).sum(1)) - sim.roll(1, 0).diag()).mean()
    LOOP
""",
        "logsumexp",
        [
            "    loss = (torch.logsumexp(sim.masked_fill(others == 0, -torch.inf), 1) - sim.roll(1, 0).diag()).mean()"
        ],
    ),
    "a mixture of densities": (
        start("1, 9")
        + """
for step in range(4):
    y = torch.randn(10, 1) + (90 if step == 2 else 0)
    weight, mean, width = net(torch.randn(10, 1)).chunk(3, dim=1)
    share, width = weight.softmax(1), F.softplus(width) + 0.1
    parts = torch.exp(-0.5 * ((y - mean) / width) ** 2) / width
    loss = -torch.log((share * parts).sum(1)).mean()
    LOOP
""",
        "logsumexp",
        [
            "    share_logits, width = weight, F.softplus(width) + 0.1",
            "    loss = -torch.logsumexp(torch.log_softmax(share_logits, dim=1) - 0.5 * ((y - mean) / width) ** 2 - width.log(), 1).mean()",
        ],
    ),
    "the mean of exponentials in another file": (
        start("6, 5")
        + """
from bound import exp_mean

for step in range(3):
    log_w = -net(torch.randn(8, 6)).square() - (200 if step == 1 else 0)
    loss = -torch.log(exp_mean(log_w, 1)).mean()
    LOOP
--- bound.py
import torch


def exp_mean(values, dim):
    weights = torch.exp(values)
    return weights.mean(dim)
""",
        "log_space",
        [
            "def log_exp_mean(values, dim):",
            "    return torch.logsumexp(values, dim) - math.log(values.shape[dim])",
            "from bound import log_exp_mean",
            "    loss = -log_exp_mean(log_w, 1).mean()",
        ],
    ),
    "the density of a mixture that a method returns": (
        start("1, 6")
        + """
class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net

    def parts(self, x):
        raw, mean = self.net(x).chunk(2, dim=1)
        return raw.softmax(1), mean

    def forward(self, x, y):
        share, mean = self.parts(x)
        return (share * torch.exp(-0.5 * (y - mean) ** 2)).sum(1)

model = Mixture()
for step in range(3):
    y = torch.randn(10, 1) + (90 if step == 1 else 0)
    loss = -model(torch.randn(10, 1), y).log().mean()
    LOOP
""",
        "logsumexp",
        [
            "        return raw, mean",
            "        share_logits, mean = self.parts(x)",
            "        return torch.logsumexp(torch.log_softmax(share_logits, dim=1) - 0.5 * (y - mean) ** 2, 1)",
            "    loss = -model(torch.randn(10, 1), y).mean()",
        ],
    ),
    "a ratio of probabilities": (
        start("4, 3")
        + """
def to_probs(scores):
    return torch.softmax(scores, dim=1)

old = nn.Linear(4, 3)
old.load_state_dict(net.state_dict())
for step in range(4):
    x = torch.randn(6, 4) * (300 if step == 2 else 1)
    p = to_probs(net(x))
    q = to_probs(old(x)).detach()
    loss = (p / q).clamp(max=1.2).mean()
    LOOP
""",
        "log_ratio",
        [
            "def to_logits(scores):",
            "    return scores",
            "    logits = to_logits(net(x))",
            "    q = torch.log_softmax(to_logits(old(x)), dim=1).detach()",
            "    loss = (torch.log_softmax(logits, dim=1) - q).exp().clamp(max=1.2).mean()",
        ],
    ),
    "a cosine": (
        start("4, 3")
        + """
for step in range(4):
    a, b = net(torch.randn(6, 4)), torch.randn(6, 3)
    b[2] *= step != 2
    dot = (a * b).sum(-1)
    loss = (dot / (a.norm(dim=-1) * b.norm(dim=-1))).mean()
    LOOP
""",
        "cosine_similarity",
        ["    loss = F.cosine_similarity(a, b, dim=-1).mean()"],
    ),
    "what a mask multiplies by 0 later": (
        start("4, 3")
        + """
for step in range(4):
    p = net(torch.randn(6, 4)).abs()
    valid = torch.ones(6, 3)
    if step == 2:
        p, valid[1] = p * torch.tensor([1.0, 0, 1, 1, 1, 1])[:, None], 0.0
    loss = -(torch.log(p) * valid).sum() / valid.sum()
    LOOP
""",
        "double_where",
        ["    loss = -(torch.log(torch.where(valid != 0, p, 1.0)) * valid).sum() / valid.sum()"],
    ),
    "a root of a product": (
        start("5, 400")
        + """
for step in range(3):
    p = torch.sigmoid(net(torch.randn(6, 5)))
    loss = -torch.log(p.prod(dim=1).pow(0.01)).mean()
    LOOP
""",
        "log_space",
        ["    loss = -(0.01 * F.logsigmoid(net(torch.randn(6, 5))).sum(dim=1)).mean()"],
    ),
    "a sigmoid by hand through a variable": (
        start("3, 1")
        + """
for step in range(4):
    e = torch.exp(net(torch.randn(16, 3)) * (400 if step == 2 else 1))
    p = e / (e + 1)
    loss = (p - 0.5).square().mean()
    LOOP
""",
        "sigmoid",
        [
            "    p = torch.sigmoid(net(torch.randn(16, 3)) * (400 if step == 2 else 1))",
        ],
    ),
    "a ratio that is cut off at 2": (
        start("3, 1")
        + """
for step in range(4):
    gap = net(torch.randn(16, 3)) + (200 if step == 2 else 0)
    weight = torch.exp(gap).clamp(max=2.0)
    loss = (weight * torch.randn(16, 1)).mean()
    LOOP
""",
        "clamp_before_exp",
        ["    weight = torch.exp(gap.clamp(max=math.log(2)))"],
    ),
    "scores scaled after an einsum": (
        start("32, 96", ".half()")
        + """
for step in range(4):
    x = torch.randn(2, 5, 32).half() * (300 if step == 2 else 1)
    q, k, v = net(x).chunk(3, dim=-1)
    scores = 32**-0.5 * torch.einsum("bid,bjd->bij", q, k)
    loss = (scores.softmax(-1) @ v).float().abs().mean()
    LOOP
""",
        "scale_first",
        ['    scores = torch.einsum("bid,bjd->bij", q * (32**-0.5), k)'],
    ),
    "an eps of 0 for a layer of torch's": (
        start("3, 4")
        + """
norm = nn.LayerNorm(4, eps=0.0)
for step in range(4):
    x = torch.randn(6, 3)
    if step == 2:
        x[1] = 0.0
        with torch.no_grad():
            net.bias.zero_()
    loss = norm(net(x)).abs().mean()
    LOOP
""",
        "default_eps",
        ["norm = nn.LayerNorm(4)"],
    ),
    "a softmax by hand with nothing to see": (
        start("4, 5")
        + """
for step in range(4):
    keep = torch.rand(3, 5) > 0.3
    keep[:, 0] = True
    if step == 2:
        keep[1] = False
    s = net(torch.randn(3, 4)).masked_fill(~keep, -torch.inf)
    w = torch.exp(s - s.amax(1, keepdim=True))
    loss = ((w / w.sum(1, keepdim=True)) @ net(torch.randn(5, 4))).square().mean()
    LOOP
""",
        "guard_row",
        [
            "    w = torch.exp(s - s.amax(1, keepdim=True).clamp(min=torch.finfo(s.dtype).min))",
            "    loss = ((w / w.sum(1, keepdim=True).clamp(min=1)) @ net(torch.randn(5, 4))).square().mean()",
        ],
    ),
    "an entropy that is only shown": (
        start("4, 3")
        + """
for step in range(2):
    loss = net(torch.randn(8, 4)).square().mean()
    LOOP
share = torch.tensor([0.5, 0.5, 0.0])
print("entropy", (-(share * share.log()).sum()).item())
""",
        "xlogy",
        ['print("entropy", (-torch.xlogy(share, share).sum()).item())'],
    ),
    "a sigmoid that bfloat16 rounds to 1": (
        start("3, 1", ".bfloat16()")
        + """
for step in range(4):
    x = torch.randn(16, 3).bfloat16() * (12 if step == 2 else 1)
    p = torch.sigmoid(net(x)).clamp(1e-4, 1 - 1e-4)
    loss = -torch.log(1 - p).mean()
    LOOP
""",
        "cast_float32",
        ["    p = torch.sigmoid(net(x).float()).clamp(1e-4, 1 - 1e-4)"],
    ),
    "a loss scale beyond float16": (
        start("3, 1", ".half()")
        + """
SCALE = 2**16
for step in range(4):
    loss = (net(torch.randn(16, 3).half()) - 3).square().mean()
    optimizer.zero_grad()
    (SCALE * loss).backward()
    for p in net.parameters():
        p.grad /= SCALE
    optimizer.step()
""",
        "lower_scale",
        ["SCALE = 2**10"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_form_of_an_expert(repairs: RepairServer, tmp_path: Path, name: str) -> None:
    text, kind, lines = PROGRAMS[name]
    found = verified(repairs.fix(unpacked(tmp_path, text)))
    assert (found[0], [x for x in found[1] if not x.startswith("import ")]) == (kind, lines)


def test_similarities_are_not_cut_off(repairs: RepairServer, tmp_path: Path) -> None:
    """Large exponents from the first step on are what the loss is about: a bound would hide them."""
    text = (
        start("6, 4")
        + """
for step in range(3):
    z = F.normalize(net(torch.randn(8, 6)), dim=1)
    e = torch.exp(z @ z.T / 0.006)
    loss = (torch.log1p(e * torch.rand(8, 8))).mean()
    LOOP
"""
    )
    found = repairs.fix(unpacked(tmp_path, text))
    assert "clamp_exponent" not in {f["kind"] for f in found["fixes"]}


def test_modules_that_get_their_names_together(repairs: RepairServer, tmp_path: Path) -> None:
    """Logits across files, where the model is one of two on a line."""
    text = """
    import torch
    from gate import Gate
    from penalty import spread
    from torch import nn

    torch.manual_seed(0)
    gate, head = Gate(), nn.Linear(4, 1)
    optimizer = torch.optim.SGD([*gate.parameters(), *head.parameters()], lr=0.1)
    for step in range(4):
        x = torch.randn(6, 4) * (600 if step == 2 else 1)
        g = gate(x)
        loss = head(g).square().mean() + spread(g)
        LOOP
    --- gate.py
    from torch import nn


    class Gate(nn.Module):
        def __init__(self):
            super().__init__()
            self.score = nn.Linear(4, 4)

        def forward(self, x):
            return self.score(x).sigmoid()
    --- penalty.py
    import torch


    def spread(g):
        return -(torch.log(g) + torch.log(1 - g)).mean()
    """
    kind, lines = verified(repairs.fix(unpacked(tmp_path, text.replace("LOOP", "optimizer.zero_grad()\n        loss.backward()\n        optimizer.step()"))))  # fmt: skip
    assert kind == "logsigmoid"
    assert "        return self.score(x)" in lines
    assert "    g = torch.sigmoid(g_logits)" in lines

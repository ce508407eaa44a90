"""Logits handed over: from the function that made a probability to the one that takes its log."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.repair.forked import RepairServer

# Weights so large that a probability rounds to 0 or 1; `objective` is what is trained on.
LOOP = """

x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
y = {target}
model = {make}
with torch.no_grad():
    fc(model).weight.copy_(torch.tensor({weight}))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for step in range(3):
    loss = objective(model, x, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
SOFT = {"target": "torch.tensor([1, 0, 1])", "weight": "[[150.0, -150.0], [-20.0, 9.0]]"}
BINARY = {"target": "torch.tensor([0.0, 1.0, 1.0])", "weight": "[[150.0, -150.0]]"}

IMPORTS = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n"
SOFTMAX_NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2, bias=False)

    def forward(self, x):
        z = self.fc(x)
        return F.softmax(z, dim=1)  # one row per sample


def fc(model):
    return model.fc
"""
SIGMOID_NET = SOFTMAX_NET.replace("Linear(2, 2", "Linear(2, 1").replace(
    "F.softmax(z, dim=1)", "torch.sigmoid(z).squeeze(1)"
)


@dataclass(frozen=True)
class Program:
    name: str
    kind: str
    body: str
    becomes: tuple[str, ...]
    make: str = "Net()"
    binary: bool = False
    other: dict[str, str] = field(default_factory=dict)  # further files

    @property
    def text(self) -> str:
        numbers = BINARY if self.binary else SOFT
        return IMPORTS + textwrap.dedent(self.body) + LOOP.format(make=self.make, **numbers)


PROGRAMS = [
    Program(
        "model_and_nll_loss", "cross_entropy",
        SOFTMAX_NET + """

def objective(model, x, y):
    p = model(x)  # probabilities
    return F.nll_loss(torch.log(p), y)
""",
        ("        return z  # one row per sample", "    logits = model(x)  # probabilities",
         "    return F.cross_entropy(logits, y)"),
    ),
    Program(
        "picked_in_a_loss_function", "log_softmax",
        SOFTMAX_NET + """

def likelihood(p, y):
    # of the right class
    return -p[torch.arange(len(y)), y].log().mean()


def objective(model, x, y):
    return likelihood(model(x), y)
""",
        ("        return z  # one row per sample", "    # of the right class",
         "def likelihood(logits, y):",
         "    return -torch.log_softmax(logits, dim=1)[torch.arange(len(y)), y].mean()"),
    ),
    Program(
        "accuracy_needs_the_probability", "log_softmax",
        SOFTMAX_NET + """

def objective(model, x, y):
    p = model(x)
    sure = (p.max(dim=1).values > 0.9).float().mean()
    loss = -torch.log(p.gather(1, y.unsqueeze(1))).mean()
    return loss + 0 * sure
""",
        ("    logits = model(x)", "    p = torch.softmax(logits, dim=1)",
         "    sure = (p.max(dim=1).values > 0.9).float().mean()",
         "    loss = -torch.log_softmax(logits, dim=1).gather(1, y.unsqueeze(1)).mean()"),
    ),
    Program(
        "picked_under_a_name", "log_softmax",
        SOFTMAX_NET + """

def objective(model, x, y):
    p = model(x)
    picked = p.gather(1, y[:, None]).squeeze(1)  # of the right class
    return -picked.log().mean()
""",
        ("        return z  # one row per sample",
         "    picked = torch.log_softmax(logits, dim=1).gather(1, y[:, None]).squeeze(1)  # of the right class",
         "    return -picked.mean()"),
    ),
    Program(
        "picked_by_a_helper_and_looked_at", "log_softmax",
        SOFTMAX_NET + """

def of_the_right_class(p, y):
    return torch.gather(p, 1, y[:, None])


def objective(model, x, y):
    picked = of_the_right_class(model(x), y)
    sure = (picked > 0.5).float().mean()
    return -torch.log(picked).mean() + 0 * sure * picked.shape[0]
""",
        ("        return z  # one row per sample",
         "    return torch.gather(torch.log_softmax(logits, dim=1), 1, y[:, None])",
         "    sure = (torch.exp(picked) > 0.5).float().mean()",
         "    return -picked.mean() + 0 * sure * picked.shape[0]"),
    ),
    Program(
        "sequential_in_one_line", "log_softmax",
        """
def fc(model):
    return model[0]


def objective(model, x, y):
    log_p = torch.log(model(x))
    return F.nll_loss(log_p, y)
""",
        ("model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Identity())",
         "    log_p = torch.log_softmax(model(x), dim=1)"),
        make="nn.Sequential(nn.Linear(2, 2, bias=False), nn.Identity(), nn.Softmax(dim=1))",
    ),
    Program(
        "sequential_inside_a_module", "log_softmax",
        """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(2, 2, bias=False),  # scores
            nn.Softmax(dim=-1),
        )

    def forward(self, x):
        return self.layers(x)


def fc(model):
    return model.layers[0]


def objective(model, x, y):
    chosen = F.one_hot(y, 2)
    return -(chosen * torch.log(model(x))).sum(1).mean()
""",
        ("            nn.Linear(2, 2, bias=False),  # scores", "        )",
         "    return -(chosen * torch.log_softmax(model(x), dim=-1)).sum(1).mean()"),
    ),
    Program(
        "softmax_module_of_its_own", "log_softmax",
        """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2, bias=False)
        self.soft = nn.Softmax(dim=1)

    def forward(self, x):
        x = x + 0 * self.soft(x)  # the same module, for something else
        return self.soft(self.fc(x))


def fc(model):
    return model.fc


def objective(model, x, y):
    p = model(x)
    return -p.log()[torch.arange(len(y)), y].mean()
""",
        ("        x = x + 0 * self.soft(x)  # the same module, for something else",
         "        return self.fc(x)",
         "    return -torch.log_softmax(logits, dim=1)[torch.arange(len(y)), y].mean()"),
    ),
    Program(
        "criterion_handed_in_as_a_parameter", "log_softmax",
        """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2, bias=False)
        self.act = nn.Softmax(dim=-1)

    def forward(self, x):
        out = self.fc(x)
        # to probabilities
        out = self.act(out)
        return out


class Likelihood(nn.Module):
    def forward(self, probs, target):
        logp = torch.log(probs)
        return -logp.gather(1, target[:, None]).mean()


def fc(model):
    return model.fc


def hits(net, x, y):
    return (net(x).argmax(dim=1) == y).sum()


def loss_of(net, criterion, x, y):
    return criterion(net(x), y)


def objective(model, x, y):
    hits(model, x, y)
    return loss_of(model, Likelihood(), x, y)
""",
        ("        # to probabilities", "        logp = torch.log_softmax(logits, dim=-1)",
         "    return (torch.softmax(net(x), dim=-1).argmax(dim=1) == y).sum()"),
    ),
    Program(
        "helper_functions_in_two_files", "log_softmax",
        """
from losses import nll


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2, bias=False)

    def forward(self, x):
        return self.fc(x)


def fc(model):
    return model.fc


def probabilities(model, x):
    return torch.softmax(model(x), 1)


def objective(model, x, y):
    return nll(probabilities(model, x), target=y)
""",
        ("    return model(x)",),
        other={
            "losses.py": "import torch\n\n\ndef nll(p, target):\n    log_p = p.log()  # natural\n"
            "    return -log_p[torch.arange(len(target)), target].mean()\n"
        },
    ),
    Program(
        "cross_entropy_of_a_sigmoid_by_hand", "bce_with_logits",
        SIGMOID_NET + """

def entropy(p, y):
    # by hand
    return -(y * torch.log(p) + (1 - y) * torch.log(1 - p)).mean()


def objective(model, x, y):
    return entropy(model(x), y)
""",
        ("        return z.squeeze(1)  # one row per sample", "    # by hand",
         "    return F.binary_cross_entropy_with_logits(logits, y)"),
        binary=True,
    ),
    Program(
        "weighted_logarithms_of_a_sigmoid", "logsigmoid",
        SIGMOID_NET + """

def objective(model, x, y):
    p = model(x)
    right = (p > 0.5) == y
    loss = -(2.0 * y * p.log() + (1 - y) * (1 - p).log()).mean()
    return loss + 0 * right.float().mean()
""",
        ("    logits = model(x)", "    p = torch.sigmoid(logits)", "    right = (p > 0.5) == y",
         "    loss = -(2.0 * y * F.logsigmoid(logits) + (1 - y) * F.logsigmoid(-logits)).mean()"),
        binary=True,
    ),
    Program(
        "cross_entropy_by_hand_in_one_function", "bce_with_logits",
        """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 1, bias=False)

    def forward(self, x):
        return self.fc(x).squeeze(1)


def fc(model):
    return model.fc


def objective(model, x, y):
    # squash
    p = torch.sigmoid(model(x))
    return torch.mean(-y * torch.log(p) - (1 - y) * torch.log(1 - p))
""",
        ("    # squash", "    return F.binary_cross_entropy_with_logits(model(x), y)"),
        binary=True,
    ),
    Program(
        "model_kept_by_another_object", "log_softmax",
        SOFTMAX_NET + """

class Trainer:
    def __init__(self, net, rate):
        self.net, self.rate = net, rate

    def loss(self, x, y):
        return -self.net(x).log().gather(1, y[:, None]).mean()


def objective(model, x, y):
    return trainer.loss(x, y)
""",
        ("        return -torch.log_softmax(self.net(x), dim=1).gather(1, y[:, None]).mean()",),
        make="Net()\ntrainer = Trainer(model, 0.1)",
    ),
    Program(
        "entry_of_a_dictionary", "log_softmax",
        SOFTMAX_NET.replace('F.softmax(z, dim=1)', '{"scale": 1.0, "probs": F.softmax(z, dim=1)}')
        + """

def objective(model, x, y):
    out = model(x)
    sure = out["probs"].max(dim=1).values.mean()
    return -out["probs"].log().gather(1, y[:, None]).mean() * out["scale"] + 0 * sure
""",
        ('        return {"scale": 1.0, "logits": z}  # one row per sample',
         '    sure = torch.softmax(out["logits"], dim=1).max(dim=1).values.mean()'),
    ),
    Program(
        "field_of_a_result", "bce_with_logits",
        """
from dataclasses import dataclass


@dataclass
class Output:
    hidden: torch.Tensor
    prob: torch.Tensor
"""
        + SIGMOID_NET.replace("torch.sigmoid(z).squeeze(1)", "Output(z, torch.sigmoid(z).squeeze(1))")
        + """

def objective(model, x, y):
    out = model(x)
    return -(y * out.prob.log() + (1 - y) * (1 - out.prob).log()).mean()
""",
        ("    logits: torch.Tensor", "        return Output(z, z.squeeze(1))  # one row per sample",
         "    return F.binary_cross_entropy_with_logits(out.logits, y)"),
        binary=True,
    ),
    Program(
        "sigmoid_of_ones_own_called_twice", "bce_with_logits",
        """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 1, bias=False)

    def forward(self, x):
        return self.fc(x).squeeze(1)


def fc(model):
    return model.fc


def squash(a):
    e = torch.exp(-a)
    return 1.0 / (1.0 + e)


def bce(p, t):
    return -(t * torch.log(p) + (1 - t) * torch.log(1 - p)).mean()


def objective(model, x, y):
    with torch.no_grad():
        held_out = squash(model(x))
        print(bce(held_out, y), (held_out > 0.5).sum())
    return bce(squash(model(x)), y)
""",
        ("        held_out_logits = model(x)", "        held_out = squash(held_out_logits)",
         "def bce(logits, t):", "    return F.binary_cross_entropy_with_logits(logits, t)",
         "    return bce(model(x), y)"),
        binary=True,
    ),
    Program(
        "softmax_written_out", "log_softmax",
        SOFTMAX_NET.replace(
            "return F.softmax(z, dim=1)",
            "e = torch.exp(z)\n        return e / e.sum(dim=1, keepdim=True)",
        )
        + """

def objective(model, x, y):
    return -torch.log(model(x)[torch.arange(len(y)), y]).mean()
""",
        ("        return z  # one row per sample",
         "    return -torch.log_softmax(model(x), dim=1)[torch.arange(len(y)), y].mean()"),
    ),
]  # fmt: skip

EXACT: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "weighted_logarithms_of_a_sigmoid": lambda z, y: (
        -(2 * y * F.logsigmoid(z) + (1 - y) * F.logsigmoid(-z)).mean()
    ),
}


def write(folder: Path, program: Program) -> Path:
    script = folder / "program.py"
    script.write_text(program.text)
    for name, text in program.other.items():
        (folder / name).write_text(text)
    return script


def loss_and_gradient(
    texts: dict[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Tensor, Tensor]:
    """Of the changed program, before its first step."""
    for path, text in texts.items():
        (folder / Path(path).name).write_text(text)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(__import__("sys").modules, "losses", raising=False)
    scope: dict[str, Any] = {}
    exec((folder / "program.py").read_text().partition("optimizer =")[0], scope)
    model = scope["model"]
    loss = scope["objective"](model, scope["x"], scope["y"])
    (gradient,) = torch.autograd.grad(loss, scope["fc"](model).weight)
    return loss.detach(), gradient


def right(program: Program) -> tuple[Tensor, Tensor]:
    """The same in float64, from the logits."""
    numbers = BINARY if program.binary else SOFT
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]], dtype=torch.float64)
    weight = torch.tensor(eval(numbers["weight"]), dtype=torch.float64, requires_grad=True)
    y = eval(numbers["target"])
    z = x @ weight.T
    if program.binary:
        exact = EXACT.get(program.name, F.binary_cross_entropy_with_logits)
        loss = exact(z.squeeze(1), y.double())
    else:
        loss = F.cross_entropy(z, y)
    (gradient,) = torch.autograd.grad(loss, weight)
    return loss.detach(), gradient


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_logits_are_handed_over(
    program: Program, repairs: RepairServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = repairs.fix(write(tmp_path, program))
    first = found["fixes"][0]
    assert (first["kind"], first["verdict"]) == (program.kind, "verified"), found["fixes"]
    lines = [line for text in found["texts"].values() for line in text.splitlines()]
    for line in program.becomes:
        assert line in lines, "\n".join(lines)
    value, gradient = loss_and_gradient(found["texts"], tmp_path, monkeypatch)
    exact = right(program)
    torch.testing.assert_close(value.double(), exact[0], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gradient.double(), exact[1], rtol=1e-4, atol=1e-6)


def test_the_comment_in_the_other_file_stays(repairs: RepairServer, tmp_path: Path) -> None:
    program = next(p for p in PROGRAMS if p.other)
    texts = repairs.fix(write(tmp_path, program))["texts"]
    losses = next(text for path, text in texts.items() if path.endswith("losses.py"))
    assert "    log_p = torch.log_softmax(logits, dim=1)  # natural" in losses.splitlines()
    assert len(texts) == 2


HALF = Program(
    "half",
    "bce_with_logits",
    SIGMOID_NET
    + """

criterion = nn.BCELoss()  # mean over the batch


def objective(model, x, y):
    return criterion(model(x.half()), y.half())
""",
    (),
    make="Net().half()",
    binary=True,
)


def test_bce_loss_in_half_precision_gets_logits(repairs: RepairServer, tmp_path: Path) -> None:
    """Its gradient divides by p (1 - p), kept above 1e-12, which float16 rounds to 0."""
    found = repairs.fix(write(tmp_path, HALF))
    assert (found["fixes"][0]["kind"], found["fixes"][0]["verdict"]) == (
        "bce_with_logits",
        "verified",
    ), found["fixes"]
    text = next(iter(found["texts"].values()))
    assert "criterion = nn.BCEWithLogitsLoss()  # mean over the batch" in text
    assert "        return z.squeeze(1)  # one row per sample" in text


OBJECTIVE = """

def objective(model, x, y):
    p = model(x)
    return -torch.log(p)[torch.arange(len(y)), y].mean()
"""


@pytest.mark.parametrize(
    ("body", "other"),
    [
        pytest.param(
            SOFTMAX_NET + OBJECTIVE + "\n\nclass Wide(Net):\n    pass\n", {}, id="a subclass"
        ),
        pytest.param(
            SOFTMAX_NET + OBJECTIVE + "\n\nKINDS = {'net': Net}\n", {}, id="the class as a value"
        ),
        pytest.param(
            SOFTMAX_NET.replace(
                "        return F",
                "        if x.ndim == 1:\n            return z\n        return F",
            )
            + OBJECTIVE,
            {},
            id="two returns",
        ),
        pytest.param(
            SOFTMAX_NET
            + OBJECTIVE.replace(
                "    return", "    model.register_forward_hook(lambda m, i, o: None)\n    return"
            ),
            {},
            id="a hook sees the result",
        ),
        pytest.param(
            SOFTMAX_NET + OBJECTIVE,
            {"serve.py": "from program import model\n\n\ndef serve(x):\n    return model(x)\n"},
            id="another file imports the model",
        ),
        pytest.param(
            SOFTMAX_NET.replace("F.softmax(z, dim=1)", '{"probs": F.softmax(z, dim=1)}')
            + OBJECTIVE.replace(
                "    p = model(x)",
                "    out = model(x)\n    print(*out.items())\n    p = out['probs']",
            ),
            {},
            id="all entries are shown",
        ),
    ],
)
def test_nothing_is_handed_over_where_the_model_also_goes_elsewhere(
    body: str, other: dict[str, str], repairs: RepairServer, tmp_path: Path
) -> None:
    found = repairs.fix(write(tmp_path, Program("near", "", body, (), other=other)))
    assert found["fixes"]
    assert all("log_softmax" not in fix["patch"] for fix in found["fixes"]), found["fixes"]


def test_a_loss_that_is_also_given_other_things_stays_as_it_is(
    repairs: RepairServer, tmp_path: Path
) -> None:
    body = (
        SOFTMAX_NET
        + """

def nll(p, y):
    return -torch.log(p)[torch.arange(len(y)), y].mean()


def objective(model, x, y):
    prior = nll(torch.full((len(y), 2), 0.5), y)
    return nll(model(x), y) + prior
"""
    )
    found = repairs.fix(write(tmp_path, Program("near", "", body, ())))
    assert all("log_softmax" not in fix["patch"] for fix in found["fixes"])

"""A search over learning rates rejects what diverges; one in which nothing is left is told of."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness import ForkServer, words_of_whynan
from tests.watching.test_policies import written

SETUP = """
import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(64, 10)
y = x @ torch.randn(10, 1)

def train(lr, decay=0.0):
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, weight_decay=decay)
    for step in range(60):
        loss = LOSS
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item(), net

def fit(net, optimizer):
    for step in range(8):
        loss = ((net(x) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()
"""
LOSS = "((net(x) - y) ** 2).mean()"
SEARCHES = {
    "a loop that begins badly": """
        for lr in (10.0, 0.1, 0.01):
            print(lr, train(lr)[0])
        """,
    "a loop that ends badly": """
        found = {}
        for settings in [dict(lr=0.01, decay=0.0), dict(lr=0.01, decay=300.0)]:
            found[settings["decay"]], net = train(**settings)
            print(settings, found)
        print(found)
        """,
    "beside an object that is gone": """
        import weakref
        class Owner:
            pass
        def search():
            owner = weakref.proxy(Owner())
            for lr in (10.0, 0.1):
                print(lr, train(lr)[0])
        search()
        """,
    "a comprehension": """
        found = {lr: train(lr)[0] for lr in (0.01, 10.0)}
        print(found, min(v for v in found.values() if v == v))
        """,
    "a model that is set back": """
        net = nn.Linear(10, 1)
        begun = {name: value.clone() for name, value in net.state_dict().items()}
        for lr in (0.01, 1e30, 0.1):
            optimizer = torch.optim.SGD(net.parameters(), lr=lr)
            net.load_state_dict(begun)
            print(lr, fit(net, optimizer))
        """,
    "a library": """
        import optuna
        study = optuna.create_study(sampler=optuna.samplers.GridSampler({"lr": [10.0, 0.1]}))
        study.optimize(lambda trial: train(trial.suggest_float("lr", 0.01, 10))[0], n_trials=2)
        print(study.best_value)
        """,
}


def program(search: str, loss: str = LOSS) -> str:
    lines = [line.removeprefix(" " * 8) for line in search.splitlines()]
    return SETUP.replace("LOSS", loss) + "\n".join(lines)


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("mode", ["auto", "trace"])
def test_a_search_may_reject_what_diverges(
    programs: ForkServer, tmp_path: Path, name: str, mode: str
) -> None:
    script = written(tmp_path, program(SEARCHES[name]))
    plain = programs.run(script, traced=False)
    ran = programs.run(script, mode=mode)
    assert "nan" in plain.stdout or name == "a library"
    assert (ran.code, ran.stdout) == (0, plain.stdout)
    assert not words_of_whynan(ran.stderr)


@pytest.mark.parametrize("mode", ["auto", "trace"])
def test_a_fault_of_every_trial_is_told(programs: ForkServer, tmp_path: Path, mode: str) -> None:
    loss = "(net(x) - y).abs().mean() + 0 * (net[0].weight * 0).sum().sqrt()"
    search = "for lr in (0.1, 0.01):\n    print(lr, train(lr)[0])\n"
    ran = programs.run(written(tmp_path, program(search, loss)), mode=mode)
    assert ran.code == 3
    assert ran.report is not None
    (anomaly,) = ran.report["anomalies"]
    assert (anomaly["location"]["line"], anomaly["step"]) == (14, 0)


HARM_OF_ITS_OWN = {
    "the folds of one setting": ("for fold in range(2):\n    train(10.0)\n", 0),
    "a rate that a schedule goes through": (
        """
net = nn.Linear(10, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for lr in (0.01, 1e30, 1e30):
    optimizer.param_groups[0]["lr"] = lr
    optimizer.zero_grad()
    ((net(x) - y) ** 2).mean().backward()
    optimizer.step()
""",
        2,
    ),
    "an optimizer for each rate of a schedule": (
        """
net = nn.Linear(10, 1)
for lr in (0.01, 1e30, 0.1, 0.01):
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    fit(net, optimizer)
print(net.weight.sum())
""",
        3,
    ),
    "the training with what was chosen": (
        "for lr in (0.1, 0.01):\n    print(train(lr)[0])\nloss, net = train(10.0)\nprint(loss)\n",
        120,
    ),
}


@pytest.mark.parametrize("name", HARM_OF_ITS_OWN)
def test_harm_that_no_search_rejects_is_told(
    programs: ForkServer, tmp_path: Path, name: str
) -> None:
    text, earliest = HARM_OF_ITS_OWN[name]
    ran = programs.run(written(tmp_path, program(text)))
    assert ran.code == 3
    assert ran.report is not None
    assert ran.report["anomalies"][0]["step"] >= earliest


def test_the_model_of_a_lost_trial_that_is_used_afterwards_is_told(
    programs: ForkServer, tmp_path: Path
) -> None:
    text = """
for lr in (0.1, 10.0):
    loss, net = train(lr)
with torch.no_grad():
    print(net(x).mean().item())
"""
    assert programs.run(written(tmp_path, program(text))).code == 3

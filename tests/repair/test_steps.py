"""Steps that are too long for what they follow are made shorter, and what comes out has to settle."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.repair.bundles import unpacked, verified
from tests.repair.forked import RepairServer

SPRING = """
    import torch
    from torch import nn

    STEP = 0.5


    class Spring(nn.Module):
        def __init__(self):
            super().__init__()
            self.stiff = nn.Parameter(torch.tensor(30.0))

        def forward(self, x):
            return -self.stiff * x * x.abs()


    def swing(spring, x, end):
        for _ in range(ROUNDS):
            x = x + STEP * spring(x)
        return x


    spring = Spring()
    optimizer = torch.optim.SGD(spring.parameters(), lr=1e-3)
    for step in range(3):
        loss = (swing(spring, torch.tensor(2.0), 10.0) - 0.1).square()
        LOOP
    """


def test_a_stable_step_is_written_where_the_step_is_set(
    repairs: RepairServer, tmp_path: Path
) -> None:
    text = SPRING.replace("ROUNDS", "round(end / STEP)")
    assert verified(repairs.fix(unpacked(tmp_path, text))) == ("shorter_steps", ["STEP = 0.025"])


def test_shorter_steps_are_not_proposed_where_their_number_is_fixed(
    repairs: RepairServer, tmp_path: Path
) -> None:
    found = repairs.fix(unpacked(tmp_path, SPRING.replace("ROUNDS", "20")))
    assert "shorter_steps" not in {f["kind"] for f in found["fixes"]}


@pytest.mark.parametrize("given", ["lr=1, max_iter=20", "lr=1, max_iter=20, history_size=5"])
def test_lbfgs_searches_along_its_direction(
    repairs: RepairServer, tmp_path: Path, given: str
) -> None:
    text = f"""
    import torch

    torch.manual_seed(1)
    t = torch.linspace(0, 10, 200)
    signal = 5.0 * torch.exp(-t / 0.4) + 2.0 * torch.exp(-t / 3.0) + 0.02 * torch.randn(200)
    size = torch.tensor([1.0, 1.0], requires_grad=True)
    rate = torch.tensor([1.0, 0.1], requires_grad=True)
    optimizer = torch.optim.LBFGS([size, rate], {given})


    def closure():
        optimizer.zero_grad()
        decay = torch.exp(-rate[:, None] * t)
        loss = (((size[:, None] * decay).sum(0) - signal) ** 2).sum()
        loss.backward()
        return loss


    for _ in range(5):
        optimizer.step(closure)
    """
    kind, lines = verified(repairs.fix(unpacked(tmp_path, text)))
    line = f'optimizer = torch.optim.LBFGS([size, rate], {given}, line_search_fn="strong_wolfe")'
    assert (kind, lines) == ("line_search", [line])


def test_a_solver_stops_when_it_has_arrived(repairs: RepairServer, tmp_path: Path) -> None:
    text = """
    import torch


    def solve(A, b, rounds):
        x, r = torch.zeros_like(b), b.clone()
        p, left = r.clone(), r @ r
        for _ in range(rounds):
            Ap = A @ p
            step = left / (p @ Ap)
            x, r = x + step * p, r - step * Ap
            now = r @ r
            p = r + now / left * p
            left = now
        return x


    torch.manual_seed(0)
    half = torch.randn(5, 5)
    for b in (torch.ones(5), torch.zeros(5)):
        print(solve(half @ half.T + torch.eye(5), b, 4).norm().item())
    """
    kind, lines = verified(repairs.fix(unpacked(tmp_path, text)))
    assert (kind, lines) == (
        "stop_converged",
        ["    enough = 1e-12 * left", "        if left <= enough:", "            break"],
    )


def test_a_secant_stops_when_both_points_are_one(repairs: RepairServer, tmp_path: Path) -> None:
    text = """
    import torch

    a, b = torch.tensor(1.0), torch.tensor(2.0)
    for _ in range(40):
        fa, fb = a * a - 2.0, b * b - 2.0
        a, b = b, b - fb * (b - a) / (fb - fa)
    print(b.item())
    """
    kind, lines = verified(repairs.fix(unpacked(tmp_path, text)))
    assert (kind, lines) == ("stop_converged", ["    if fb - fa == 0:", "        break"])


def test_a_mean_of_nothing_in_a_training_loop_is_no_solver(
    repairs: RepairServer, tmp_path: Path
) -> None:
    text = """
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        kept = torch.zeros(()) if step == 2 else torch.ones(())
        loss = (model(torch.ones(2, 3)).square().sum() * kept) / kept
        LOOP
    """
    kinds = {f["kind"] for f in repairs.fix(unpacked(tmp_path, text))["fixes"]}
    assert "stop_converged" not in kinds


def test_equal_eigenvalues_of_the_start_are_drawn_apart(
    repairs: RepairServer, tmp_path: Path
) -> None:
    text = """
    import torch
    from torch import nn


    class Ellipsoids(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.shape = nn.Parameter(torch.eye(3).repeat(n, 1, 1))

        def forward(self):
            return torch.linalg.eigh(self.shape + self.shape.mT)[1][..., -1]


    torch.manual_seed(0)
    model = Ellipsoids(4)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for step in range(4):
        loss = 1 - model()[:, 1].square().mean()
        LOOP
    """
    kind, lines = verified(repairs.fix(unpacked(tmp_path, text)))
    assert kind == "begun_apart"
    assert lines == [
        "        start = torch.eye(3).repeat(n, 1, 1)",
        "        self.shape = nn.Parameter(start + 0.05 * torch.randn_like(start))",
    ]


def test_a_recurrence_is_bounded(repairs: RepairServer, tmp_path: Path) -> None:
    text = """
    import torch
    from torch import nn

    torch.manual_seed(0)
    rnn = nn.RNN(2, 16, nonlinearity="relu")
    nn.init.constant_(rnn.weight_hh_l0, 0.1)
    optimizer = torch.optim.SGD(rnn.parameters(), lr=1e-3)
    for step in range(4):
        x = torch.rand(400 if step == 2 else 4, 1, 2)
        loss = rnn(x)[1].square().mean()
        LOOP
    """
    kind, lines = verified(repairs.fix(unpacked(tmp_path, text)))
    assert (kind, lines) == ("bounded_recurrence", ['rnn = nn.RNN(2, 16, nonlinearity="tanh")'])


@pytest.mark.parametrize(
    ("end", "changed"),
    [
        (
            "nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3), nn.ReLU())",
            "nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))",
        ),
        (
            "nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3), nn.ReLU(inplace=True)); back = nn.Sequential(nn.Linear(3, 6), nn.LeakyReLU())",
            "nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)); back = nn.Sequential(nn.Linear(3, 6), nn.LeakyReLU())",
        ),
    ],
)
def test_columns_that_are_correlated_end_with_a_linear_layer(
    repairs: RepairServer, tmp_path: Path, end: str, changed: str
) -> None:
    text = f"""
    import torch
    from torch import nn

    torch.manual_seed(0)
    net = {end}
    nn.init.constant_(net[2].bias, -0.6)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for step in range(6):
        x = torch.randn(12, 6)
        loss = (torch.corrcoef(net(x).T) - torch.eye(3)).square().sum()
        LOOP
    """
    kind, lines = verified(repairs.fix(unpacked(tmp_path, text)))
    assert (kind, lines) == ("linear_end", [f"net = {changed}"])

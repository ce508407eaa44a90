"""A parameter is called by its full name."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.record.test_tracer import anomalies_of


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)
        nn.init.zeros_(self.lin.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.lin(x)
        return x + torch.relu(h / ((h**2).mean(-1, keepdim=True).sqrt() + 1e-6))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x


class Task(nn.Module):
    """Its parts run, itself never does."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 2))


def test_of_several_layers_that_fail_the_first_in_the_backward_pass_is_named() -> None:
    def program() -> None:
        net = Net()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        x = torch.randn(2, 4)
        x[1] = 0
        net(x).square().sum().backward()
        optimizer.step()

    found = anomalies_of(program)[0]
    assert found.origin.module == "blocks.2"
    assert found.evidence.subject == "gradient of blocks.2.lin.weight"


def test_a_module_that_never_ran_itself_gives_the_name() -> None:
    def program() -> None:
        task = Task()
        optimizer = torch.optim.SGD(task.parameters(), lr=0.1)
        (task.net(torch.ones(1, 2)).sum() * 0).sqrt().backward()
        optimizer.step()

    assert anomalies_of(program)[0].evidence.subject == "gradient of net.0.weight"


def test_a_tensor_on_its_own_has_the_name_that_the_script_gave_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scale = torch.zeros(2, requires_grad=True)
    monkeypatch.setattr(sys.modules["__main__"], "log_scale", scale, raising=False)

    def program() -> None:
        optimizer = torch.optim.SGD([scale], lr=0.1)
        scale.sqrt().sum().backward()
        optimizer.step()

    assert anomalies_of(program)[0].evidence.subject == "gradient of log_scale"

"""Things are called what the program calls them, or by a plain word; never by torch's schema."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.diagnosis.test_words import tell
from tests.harness import ForkServer

OVERFLOWS = {
    "price": "price = torch.full((4,), 3e5)\nloss = price.half().sum()",
    "a": "a = torch.full((4,), 3e38)\na *= torch.full((4,), 9.0)\nloss = a.sum()",
    "guess": "guess = torch.full((4,), 1e20)\nloss = F.mse_loss(guess, torch.zeros(4))",
}


@pytest.mark.parametrize("name", OVERFLOWS)
def test_an_operand_has_the_name_of_the_program(
    programs: ForkServer, tmp_path: Path, name: str
) -> None:
    program = "import torch, torch.nn.functional as F\n" + OVERFLOWS[name] + "\nprint(loss.item())"
    told = tell(programs, tmp_path, program)
    assert f"`{name}`" in told.text
    assert "self" not in told.text


def test_a_matrix_without_a_name_is_called_by_its_place(
    programs: ForkServer, tmp_path: Path
) -> None:
    program = """
    import torch
    layer = torch.nn.Linear(4, 4)
    with torch.no_grad():
        layer.bias.fill_(0.125)
        layer.weight.fill_(1e20)
    print(layer(torch.full((2, 4), 1e20)).sum().item())
    """
    told = tell(programs, tmp_path, program)
    assert "parameter bias = 0.125" in told.text
    assert "4 values of the first matrix between" in told.text
    assert not any(word in told.text for word in ("self", "mat1", "mat2"))


def test_the_gradients_of_a_clipping_are_called_that(programs: ForkServer, tmp_path: Path) -> None:
    program = """
    import torch
    net = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    (net(torch.ones(2, 4)) * 1e25).sum().backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    """
    told = tell(programs, tmp_path, program)
    assert "1x4 values of a gradient between" in told.text
    assert "self" not in told.text


def test_an_operator_that_assigns_is_named_as_written(programs: ForkServer, tmp_path: Path) -> None:
    program = """
    import torch
    w = torch.ones(3, requires_grad=True)
    kept = torch.zeros(3)
    loss = (w * kept).sum()
    loss /= kept.sum(); scale = 2
    loss.backward()
    """
    told = tell(programs, tmp_path, program)
    assert told.headline == "loss is NaN because `/=` divided 0 by `kept.sum()`, which is 0"
    assert "`kept.sum()` is exactly 0" in told.text
    assert "`/=`" in told.text.split("where:")[1].split("observed:")[0]


def test_of_two_operators_on_a_line_neither_is_named_if_it_could_be_both(
    programs: ForkServer, tmp_path: Path
) -> None:
    program = """
    import torch
    a = torch.zeros(3); b = torch.zeros(3); c = torch.ones(3)
    a /= b; c *= a
    print(c)
    """
    assert "`div` divided 0 by 0" in tell(programs, tmp_path, program).headline


def test_what_is_differentiated_is_not_called_the_loss(
    programs: ForkServer, tmp_path: Path
) -> None:
    program = """
    import torch
    x = torch.tensor([0.0, 1.0], requires_grad=True)
    u = x.log() * 0
    slope = torch.autograd.grad(u, x, torch.ones_like(u))[0]
    with torch.no_grad():
        x -= slope
    (x * 1).sum()
    """
    told = tell(programs, tmp_path, program)
    assert told.headline.startswith("`u`, which is differentiated, is NaN because `log`")
    assert "loss" not in told.text


def test_a_loss_that_is_differentiated_is_one(programs: ForkServer, tmp_path: Path) -> None:
    program = """
    import torch
    x = torch.tensor([0.0, 1.0], requires_grad=True)
    loss = (x.log() * 0).sum()
    slope = torch.autograd.grad(loss, x)[0]
    with torch.no_grad():
        x -= slope
    (x * 1).sum()
    """
    assert tell(programs, tmp_path, program).headline.startswith("loss is NaN because `log`")

"""A function of TorchScript has no Python frame; its graph knows the lines."""

from __future__ import annotations

from pathlib import Path

from tests.diagnosis.test_words import tell
from tests.harness import ForkServer

PROGRAM = """
import torch

@torch.jit.script
def dice(p: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    both = (p * t).sum(dim=1) / 2.0
{body}

p = torch.zeros(4, 3, requires_grad=True)
loss = dice(p, torch.zeros(4, 3)).mean()
loss.backward()
"""


def test_the_line_inside_is_named(programs: ForkServer, tmp_path: Path) -> None:
    body = "    return 1 - (2 * both) / (p.sum(dim=1) + t.sum(dim=1))"
    told = tell(programs, tmp_path, PROGRAM.format(body=body))
    where = told.first["location"]
    assert (where["line"], where["function"]) == (7, "dice")
    assert told.first["mechanism"] == "division_by_zero"
    assert "`p.sum(dim=1) + t.sum(dim=1)`, which is 0" in told.headline
    assert not told.first["unknown"]


def test_a_module_that_was_scripted_names_its_line(programs: ForkServer, tmp_path: Path) -> None:
    program = """
    import torch

    class Head(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x * 2.0
            return torch.log(y)

    head = torch.jit.script(Head())
    x = torch.zeros(3, requires_grad=True)
    loss = head(x).sum()
    loss.backward()
    """
    told = tell(programs, tmp_path, program)
    assert (told.first["location"]["line"], told.first["mechanism"]) == (7, "log_nonpositive")


def test_a_loop_is_not_seen_into(programs: ForkServer, tmp_path: Path) -> None:
    body = "    for i in range(2):\n        both = both / p.sum(dim=1)\n    return both"
    told = tell(programs, tmp_path, PROGRAM.format(body=body))
    assert told.first["location"]["source"].startswith("loss = dice(")
    assert told.first["unknown"] == [
        "which line of `dice` did it: TorchScript runs it, and its inside cannot be seen"
    ]


def test_what_ran_outside_keeps_its_line(programs: ForkServer, tmp_path: Path) -> None:
    body = "    return both"
    program = PROGRAM.format(body=body).replace(".mean()", ".log().mean()")
    told = tell(programs, tmp_path, program)
    assert told.first["location"]["source"].startswith("loss = dice(")
    assert not told.first["unknown"]


def test_the_line_of_a_derivative_inside_is_not_claimed(
    programs: ForkServer, tmp_path: Path
) -> None:
    program = PROGRAM.format(body="    return both.sqrt()").replace(
        "loss.backward()", "loss.backward()\nprint(p.grad)"
    )
    told = tell(programs, tmp_path, program)
    assert told.first["phase"] == "backward"
    assert "its inside cannot be seen" in " ".join(told.first["unknown"])

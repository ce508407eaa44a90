"""A dry run, on the meta device or with fake tensors, is not looked at; what comes after it is."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from tests.harness import ForkServer
from tests.watching.test_policies import written

NET = "nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))"
START = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
"""
# The batch of step 8, which is no longer recorded as it happens, has weight 0.
TRAIN = f"""
torch.manual_seed(0)
net = globals().get("made") or {NET}
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
x, w = torch.randn(48, 4), torch.ones(48)
w[32:36] = BAD
for rows, weight in DataLoader(TensorDataset(x, w), batch_size=4):
    loss = ((net(rows).squeeze(1) * weight).square() / weight).mean()  # origin
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
STEPS = """
trainer = torch.optim.Adam(empty.parameters(), lr=0.1)
for _ in range(7):
    loss = empty(batch).square().mean()
    trainer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(empty.parameters(), 1.0)
    trainer.step()
print(loss, empty[0].weight.grad, trainer.state_dict()["state"][0]["exp_avg"])
with torch.no_grad():
    print(empty(batch), f"{loss}")
torch.save(empty.state_dict(), "saved.pt")
"""
# Up to torch 2.6 Adam asks how many steps there were, and a tensor of the default device cannot say.
WITHOUT_COUNT = STEPS.replace("Adam(", "SGD(momentum=0.9, params=").replace(
    "exp_avg", "momentum_buffer"
)
INDENTED = STEPS.replace("\n", "\n    ")
DRY = {
    "built there": f"""
with torch.device("meta"):
    empty, batch = {NET}, torch.empty(2, 4)
{STEPS}""",
    "moved there": f"""
empty, batch = {NET}.to("meta"), torch.empty(2, 4, device="meta")
{STEPS}""",
    "by default": f"""
torch.set_default_device("meta")
empty, batch = {NET}, torch.empty(2, 4)
{WITHOUT_COUNT}
torch.set_default_device(None)
""",
    "fake": f"""
from torch._subclasses.fake_tensor import FakeTensorMode
with FakeTensorMode():
    empty, batch = {NET}, torch.randn(2, 4)
    {INDENTED.replace('torch.save(empty.state_dict(), "saved.pt")', "")}
""",
    "fake around a real model": f"""
from torch._subclasses.fake_tensor import FakeTensorMode
torch.manual_seed(0)
made = {NET}
shown = torch.tensor([1.0, float("inf"), 2.0])
with FakeTensorMode(allow_non_fake_inputs=True):
    print(made(torch.randn(2, 4)))
    made(torch.randn(2, 4)).sum().backward()
    print(type(made[0].weight.grad))
    with torch.no_grad():
        made(torch.randn(2, 4))
for parameter in made.parameters():
    parameter.grad = None
""",
    "counted": f"""
from torch.utils.flop_counter import FlopCounterMode
with torch.device("meta"):
    empty, batch = {NET}, torch.empty(2, 4)
with FlopCounterMode(display=False) as counter:
    empty(batch).sum().backward()
print(counter.get_total_flops())
""",
    "filled later": f"""
with torch.device("meta"):
    made = {NET}
made.half().float()
early = torch.optim.SGD(made.parameters(), lr=1.0)
made.to_empty(device="cpu")
for module in made:
    module.reset_parameters()
""",
    "shaped later": """
made = nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d(), nn.Linear(8, 1))
made.half().float()
print(made[0].weight)
made(torch.randn(4, 4))
""",
    "transformed": """
inside = []
def f(x):
    inside.append(x)
    return x.sin().sum()
print(torch.vmap(f)(torch.ones(3, 2)), torch.func.jvp(f, (torch.ones(3),), (torch.ones(3),)))
print(torch.func.functionalize(lambda a: a.clone().add_(1))(torch.ones(2)))
functional = torch._to_functional_tensor(torch.ones(3))
with torch.no_grad():
    for value in (functional, inside[0]):
        nn.Identity()(value)
""",
    "in between": f"""
from torch.optim.optimizer import register_optimizer_step_pre_hook
with torch.device("meta"):
    empty, batch = {NET}, torch.empty(2, 4)
trainer = torch.optim.SGD(empty.parameters(), lr=0.1)
def estimate(real, *given):
    if real is not trainer:
        with torch.enable_grad():
            empty(batch).sum().backward()
        trainer.step()
register_optimizer_step_pre_hook(estimate)
""",
    "by accelerate": f"""
from accelerate import init_empty_weights
with init_empty_weights(include_buffers=True):
    empty = {NET}
batch = torch.empty(2, 4, device="meta")
{STEPS}""",
}


@pytest.mark.parametrize("mode", ["auto", "trace", "guard"])
@pytest.mark.parametrize("dry", DRY)
def test_a_later_nan_is_found_at_its_line(
    dry: str, mode: Literal["auto", "trace", "guard"], programs: ForkServer, tmp_path: Path
) -> None:
    script = written(tmp_path, START + DRY[dry] + TRAIN.replace("BAD", "0.0"))
    plain = programs.run(script, traced=False)
    done = programs.run(script, mode=mode)
    assert plain.code == 0, plain.stderr
    assert done.code == 3, done.stderr
    assert done.stdout == plain.stdout  # the dry run itself goes as without whynan
    assert done.report is not None
    assert done.report["notes"] == []
    [found] = done.report["anomalies"]
    assert found["step"] == 8
    if mode != "guard":
        lines = script.read_text().splitlines()
        assert lines[found["location"]["line"] - 1].endswith("# origin")


@pytest.mark.parametrize("mode", ["auto", "trace"])
def test_a_dry_run_and_a_healthy_training_are_no_harm(
    mode: Literal["auto", "trace"], programs: ForkServer, tmp_path: Path
) -> None:
    dry = DRY["built there"] + DRY["fake"] + DRY["counted"]
    script = written(tmp_path, START + dry + TRAIN.replace("BAD", "0.5"))
    done = programs.run(script, mode=mode)
    assert (done.code, done.stderr) == (0, "")
    assert done.stdout == programs.run(script, traced=False).stdout


@pytest.mark.parametrize("mode", ["auto", "trace", "guard"])
def test_backward_passes_of_a_dry_run_are_no_steps_of_a_loop_by_hand(
    mode: Literal["auto", "trace", "guard"], programs: ForkServer, tmp_path: Path
) -> None:
    script = written(
        tmp_path,
        """
        import torch
        empty = torch.ones(3, device="meta", requires_grad=True)
        for _ in range(10):
            (empty * 2).sum().backward()
            empty.grad = None
        w = torch.ones(3, requires_grad=True)
        for step in range(14):
            d = torch.full((3,), float(step != 11))
            (w * d / d).sum().backward()  # origin
            with torch.no_grad():
                w -= 0.1 * w.grad
            w.grad = None
        """,
    )
    done = programs.run(script, mode=mode)
    assert done.code == 3, done.stderr
    assert done.report is not None
    assert [a["step"] for a in done.report["anomalies"]] == [11]


def test_a_parameter_whose_memory_was_given_back_is_not_read(
    programs: ForkServer, tmp_path: Path
) -> None:
    """FullyShardedDataParallel does that; reading it would end the process."""
    script = written(
        tmp_path,
        """
        import torch
        flat = torch.nn.Parameter(torch.ones(8))
        part = flat.detach()[:4].clone()
        (flat * 2).sum().backward()
        flat.untyped_storage().resize_(0)
        flat.data.set_(part)
        given_back = torch.empty(3).log()
        given_back.untyped_storage().resize_(0)
        with torch.no_grad():
            torch.nn.Identity()(given_back)
        raise ValueError("a nan was seen, and these are in reach")
        """,
    )
    done = programs.run(script, mode="trace")
    assert done.code == 1, done.stderr
    assert "stepped aside" not in done.stderr

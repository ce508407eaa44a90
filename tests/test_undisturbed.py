"""Nothing of the user's changes: results, output, random numbers, hooks."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from torch.nn.modules import module as nn_module
from torch.optim import optimizer as nn_optimizer
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

import whynan
from tests.harness import ForkServer

PROGRAMS = Path(__file__).parent / "programs"


def test_training_is_bit_identical_with_and_without_whynan(programs: ForkServer) -> None:
    plain = programs.run(PROGRAMS / "train_models.py", traced=False)
    traced = programs.run(PROGRAMS / "train_models.py")
    assert plain.code == 0, plain.stderr
    assert traced.stdout == plain.stdout
    assert traced.code == 0
    assert "transformer 1" in traced.stdout


def state_of_torch() -> tuple[object, ...]:
    return (
        vars(torch.autograd)["_engine_run_backward"],
        torch.Tensor.__dict__.get("numpy"),
        torch.Tensor.__repr__,
        torch.save,
        torch.compile,
        torch.amp.GradScaler.step,
        torch.utils.data.dataloader._BaseDataLoaderIter.__next__,
        threading.Thread._bootstrap_inner,  # type: ignore[attr-defined]
        dict(nn_module._global_forward_hooks),
        dict(nn_module._global_forward_pre_hooks),
        dict(nn_optimizer._global_optimizer_pre_hooks),
        dict(nn_optimizer._global_optimizer_post_hooks),
        len(_get_current_dispatch_mode_stack()),
    )


WARNS_EACH_STEP = """
import warnings
import torch
torch.manual_seed(0)
net = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
mask = torch.full((4, 4), float("-inf")).triu(1)
for step in range(12):
    warnings.warn("the old format will go")
    scores = net(torch.randn(4, 4))
    cut = scores.clone()
    cut[0, 1] = float("-inf")
    loss = ((scores + mask).softmax(-1) * cut.softmax(-1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, float(loss))
"""


@pytest.mark.parametrize("mode", ["trace", "auto"])
def test_what_python_warns_of_once_is_shown_once(
    mode: str, programs: ForkServer, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(WARNS_EACH_STEP)
    plain = programs.run(script, traced=False)
    watched = programs.run(script, mode=mode)
    assert plain.stderr.count("the old format will go") == 2  # the message, and its line
    assert watched.stderr.replace(f"{tmp_path}/", "") == plain.stderr
    assert watched.stdout == plain.stdout


PROFILED = """
import torch
from torch.profiler import ProfilerActivity, profile
net = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
def step():
    loss = net(torch.ones(8, 3)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
for _ in range(BEFORE):
    step()
with profile(activities=[ProfilerActivity.CPU]) as seen:
    for _ in range(3):
        step()
print({event.key: event.count for event in seen.key_averages()})
"""


@pytest.mark.parametrize("before", [1, 9, 20])  # steps; the first five and the 10th are recorded
def test_a_profile_shows_nothing_of_whynan(
    before: int, programs: ForkServer, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(PROFILED.replace("BEFORE", str(before)))
    plain = programs.run(script, traced=False)
    assert "aten::addmm" in plain.stdout
    assert programs.run(script, mode="auto").stdout == plain.stdout


def test_tracing_leaves_no_hook_or_patch_behind() -> None:
    before = state_of_torch()
    with whynan.trace():
        assert state_of_torch() != before
        torch.ones(3).sum()
    assert state_of_torch() == before


def test_tracing_leaves_no_hook_behind_when_the_body_raises() -> None:
    before = state_of_torch()
    with pytest.raises(KeyError), whynan.trace():
        raise KeyError("mine")
    assert state_of_torch() == before


def test_an_error_of_whynan_itself_does_not_reach_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from whynan.record import tracer

    def broken(x: torch.Tensor) -> bool:
        raise RuntimeError("a bug in whynan")

    monkeypatch.setattr(tracer, "look", broken)
    with whynan.trace() as trace:
        total = torch.ones(3).log().sum()
    assert total.item() == 0
    assert "a bug in whynan" in whynan.diagnose(trace).notes[0]


def test_nothing_is_held_after_a_healthy_step() -> None:
    from whynan.run.blocks import traced

    block = traced()
    block.start()
    try:
        model = torch.nn.Linear(4, 4)
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(3):
            model(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        assert block.recorder.tracer.records == {}
        assert block.recorder.tracer.local.holder._bytes == 0
        alive = [e for e in block.recorder.tracer.entries.values() if not e.expired()]
        assert len(alive) < 20
    finally:
        block.stop()


MODELS_IN_A_ROW = """
import weakref
import torch
models = []
for fold in range(4):
    net = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(8):
        optimizer.zero_grad()
        net(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
    models.append(weakref.ref(net))
    print(sum(model() is not None for model in models))
"""


@pytest.mark.parametrize("mode", ["trace", "auto"])
def test_a_model_that_is_done_with_is_freed(
    mode: str, programs: ForkServer, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(MODELS_IN_A_ROW)
    assert programs.run(script, mode=mode).stdout.split() == ["1", "1", "1", "1"]


SCHEDULED = """
import torch
net = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
schedule.step()
"""


def test_a_warning_about_a_schedule_names_the_programs_line(
    programs: ForkServer, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCHEDULED)
    plain, watched = programs.run(script, traced=False), programs.run(script)
    assert "script.py:6: UserWarning" in plain.stderr
    assert watched.stderr.replace(f"{tmp_path}/", "") == plain.stderr.replace(f"{tmp_path}/", "")


@pytest.mark.parametrize("scale", ["1.0", "0.0"], ids=["healthy", "failing"])
def test_a_program_may_have_modules_named_like_whynans_own(scale: str, tmp_path: Path) -> None:
    for name in ("rich", "click", "jinja2"):
        (tmp_path / f"{name}.py").write_text(f"WHO = 'my {name}'\n")
    script = tmp_path / "script.py"
    script.write_text(
        "import torch\nw = torch.ones(3, requires_grad=True)\n"
        f"loss = (w / {scale}).sum() * 0\nloss.backward()\n"
        "import click, jinja2, rich\nprint(rich.WHO, click.WHO, jinja2.WHO)\n"
    )
    command = [sys.executable, "-m", "whynan", "run", "--on-anomaly", "warn", "--html", "r.html"]
    done = subprocess.run(
        [*command, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "my rich my click my jinja2\n", done.stderr
    assert done.returncode == (0 if scale == "1.0" else 3)
    assert ("error[N010]" in done.stderr) == (scale == "0.0")
    assert (tmp_path / "r.html").exists()


THREADS = """
import threading
import torch
from torch import nn

outcome = {}

def train(i):
    try:
        net = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.Linear(16, 1))
        optimizer = torch.optim.Adam(net.parameters())
        for _ in range(150):
            optimizer.zero_grad()
            net(torch.ones(8, 4) * i).square().mean().backward()
            optimizer.step()
        with torch.no_grad():
            net(torch.ones(8, 4))
        outcome[i] = "healthy"
    except BaseException as error:
        outcome[i] = repr(error)

threads = [threading.Thread(target=train, args=(i,)) for i in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(sorted(outcome.items()))
"""


def test_threads_that_train_side_by_side_are_left_alone(
    programs: ForkServer, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(THREADS)
    watched = programs.run(script, mode="auto")
    assert watched.stdout.strip() == str([(i, "healthy") for i in range(4)])
    assert (watched.code, watched.stderr) == (0, "")


def test_threads_may_each_have_a_watch_of_their_own() -> None:
    failures: list[BaseException] = []

    def train() -> None:
        net = torch.nn.Linear(4, 1)
        optimizer = torch.optim.Adam(net.parameters())
        try:
            with whynan.watch(net, optimizer):
                for _ in range(60):
                    optimizer.zero_grad()
                    net(torch.randn(8, 4)).square().mean().backward()
                    optimizer.step()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=train) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []

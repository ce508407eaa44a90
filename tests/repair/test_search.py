"""The search: what is verified, what is refused, and what is combined."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.repair.forked import RepairServer
from whynan.run.program import Program
from whynan.trying.trial import Trial, run

CASES = Path(__file__).parents[1] / "cases"
# One program of each family of changes, among them several files, threads, half precision,
# optimizers, data loaders with workers, and a failure in setup.
VERIFIED = {
    "gcn_dropedge_degree": "clamp_count",
    "silent_rmsnorm_half": "cast_float32",
    "fp16_attention_scores": "scale_first",
    "retrieval_expanded_distances": "cdist",
    "ols_dummy_columns_solve": "lstsq",
    "worker_dataset_zscore": "unit_spread",
    "mha_padded_patient": "guard_mask",
    "opt_half_adam": "optimizer_eps",
    "deep_mlp_huge_gain": "kaiming_init",
    "silent_clip_transformer": "clip_grad_value",
    "air_sensor_nan_fill": "nan_aware",
    "rnn_empty_hidden_state": "zeros",
}


@pytest.mark.parametrize("name", VERIFIED)
def test_change_found_for(name: str, repairs: RepairServer) -> None:
    found = repairs.fix(CASES / name / "script.py")
    first = found["fixes"][0]
    assert (first["kind"], first["verdict"]) == (VERIFIED[name], "verified")
    assert "without harm" in first["evidence"]
    assert first["patch"].startswith("--- a/")


def write(folder: Path, text: str, name: str = "program.py") -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(text))
    return path


def test_two_faults_are_mended_together(repairs: RepairServer, tmp_path: Path) -> None:
    script = write(
        tmp_path,
        """
        import torch

        def bce(z, y):
            p = torch.sigmoid(z)
            return -(2 * y * torch.log(p) + (1 - y) * torch.log(1 - p)).mean()

        w = torch.tensor([-200.0, 60.0], requires_grad=True)
        optimizer = torch.optim.SGD([w], lr=0.1)
        for step in range(3):
            loss = bce(w, torch.tensor([1.0, 0.0]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
    )
    found = repairs.fix(script)
    first = found["fixes"][0]
    assert (first["kind"], first["verdict"]) == ("log_space", "verified")
    text = next(iter(found["texts"].values()))
    assert (
        "return -(2 * y * torch.nn.functional.logsigmoid(z) + (1 - y) * torch.nn.functional.logsigmoid(-z)).mean()"
        in text
    )


def test_a_loss_that_is_still_infinite_is_no_cure(repairs: RepairServer, tmp_path: Path) -> None:
    """With finite gradients it does no harm; but nobody asked for such a program."""
    script = write(
        tmp_path,
        """
        import torch

        w = torch.tensor([-200.0, 1.0], requires_grad=True)
        targets = torch.tensor([2.0, 2.0])
        optimizer = torch.optim.SGD([w], lr=0.1)
        for step in range(3):
            risk = -torch.log(torch.sigmoid(w)).mean()
            loss = risk + 1 / (targets.max() - targets.min())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
    )
    first, *others = repairs.fix(script)["fixes"]
    assert (first["kind"], first["verdict"]) == ("logsigmoid+clamp_denominator", "verified")
    alone = next(f for f in others if f["kind"] == "logsigmoid")
    assert alone["verdict"] == "failed"
    assert "another failure came up: step 0, line 9: loss is inf" in alone["evidence"]


def test_a_program_may_go_to_another_folder(repairs: RepairServer, tmp_path: Path) -> None:
    inner = tmp_path / "project"
    inner.mkdir()
    script = write(
        inner,
        """
        import os
        import torch

        os.chdir("..")
        w = torch.tensor([-200.0, 60.0], requires_grad=True)
        optimizer = torch.optim.SGD([w], lr=0.1)
        for step in range(3):
            p = torch.sigmoid(w)
            loss = -(torch.log(p)[0] + 2 * torch.log(1 - p)[1])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
    )
    first = repairs.fix(script)["fixes"][0]
    assert (first["kind"], first["verdict"]) == ("log_space", "verified")
    assert first["patch"].startswith("--- a/program.py")


def test_a_guard_that_only_silences_training_is_refused(
    repairs: RepairServer, tmp_path: Path
) -> None:
    """The rate throws every prediction out of the domain; a clamp would leave no gradient."""
    found = repairs.fix(CASES / "house_price_rmsle" / "script.py")
    assert (found["fixes"][0]["kind"], found["fixes"][0]["verdict"]) == ("lower_lr", "verified")
    assert "high_learning_rate" in found["causes"]
    guards = [f for f in found["fixes"] if f["kind"] == "clamp_argument"]
    assert all(f["verdict"] != "verified" for f in guards)


BY_HAND = """
import torch

torch.manual_seed(0)
x = torch.randn(100, 3) * 10
y = x @ torch.tensor([1.0, -2.0, 3.0])
w, b = torch.zeros(3, requires_grad=True), torch.zeros(1, requires_grad=True)
rate = 0.1
for epoch in range(60):
    loss = ((x @ w + b - y) ** 2).mean()
    loss.backward()
    with torch.no_grad():
        {update}
        w.grad = b.grad = None
"""


@pytest.mark.parametrize(
    "update",
    [
        "w -= rate * w.grad; b -= rate * b.grad",
        "w.sub_(w.grad * rate); b.add_(b.grad, alpha=-rate)",
    ],
)
def test_a_rate_that_only_puts_the_failure_off_is_refused(
    repairs: RepairServer, tmp_path: Path, update: str
) -> None:
    found = repairs.fix(write(tmp_path, BY_HAND.format(update=update)))
    assert "high_learning_rate" in found["causes"]
    verdicts = {f["patch"].rsplit("+rate = ", 1)[1].split()[0]: f for f in found["fixes"]}
    assert verdicts["0.01"]["verdict"] == "failed"
    assert "the loss rises" in verdicts["0.01"]["evidence"]
    assert verdicts["0.001"]["verdict"] == "verified"


def test_a_slow_program_needs_no_hundred_steps(tmp_path: Path) -> None:
    text = """
        import time
        import torch

        w = torch.zeros(3, requires_grad=True)
        optimizer = torch.optim.SGD([w], lr=0.1)
        for step in range(1000):
            (w - 1).square().sum().backward()
            optimizer.step()
            time.sleep(0.1)
        """
    program = Program(target=str(write(tmp_path, text)))
    ran = run(Trial(program=program, max_steps=500, enough_steps=10), limit_s=18.0)
    assert ran.diagnosis is not None
    assert 10 <= ran.diagnosis.steps < 500
    assert not ran.timed_out


def test_what_an_intervention_changed_is_known_of_a_program_that_ends_at_once(
    tmp_path: Path,
) -> None:
    text = """
        import os
        import torch

        w = torch.zeros(3, requires_grad=True)
        optimizer = torch.optim.SGD([w], lr=0.1)
        for step in range(2):
            (w - 1).square().sum().backward()
            optimizer.step()
        os._exit(0)
        """
    program = Program(target=str(write(tmp_path, text)))
    assert run(Trial(program=program, intervention="clip"), limit_s=60.0).applied


def test_a_bound_that_changes_ordinary_losses_is_refused(
    repairs: RepairServer, tmp_path: Path
) -> None:
    script = write(
        tmp_path,
        """
        import torch

        torch.manual_seed(0)
        w = torch.zeros(40, requires_grad=True)
        optimizer = torch.optim.SGD([w], lr=2.0)
        for step in range(30):
            p = torch.sigmoid(w) * 0.3
            loss = -torch.log(torch.prod(p) * (step < 8)) / 40
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
    )
    found = repairs.fix(script)
    bounds = [f for f in found["fixes"] if f["kind"] == "clamp_argument"]
    assert [f["verdict"] for f in bounds] == ["failed"]
    assert "it changes ordinary values" in bounds[0]["evidence"]


def test_exact_changes_together_come_before_a_bound(repairs: RepairServer, tmp_path: Path) -> None:
    script = write(
        tmp_path,
        """
        import torch

        def partition(scores):
            alpha = scores[0]
            for row in scores[1:]:
                alpha = torch.log(torch.exp(alpha[:, None] + row).sum(0))
            return torch.log(torch.exp(alpha).sum())

        torch.manual_seed(0)
        emit = torch.randn(6, 4, requires_grad=True)
        optimizer = torch.optim.SGD([emit], lr=0.1)
        for step in range(12):
            scores = emit * (1 if step < 7 else 60)
            loss = partition(scores) - scores[:, 0].sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
    )
    found = repairs.fix(script)
    assert (found["fixes"][0]["kind"], found["fixes"][0]["verdict"]) == (
        "log_space",
        "verified",
    )


def test_a_loss_of_1e30_is_no_cure(repairs: RepairServer) -> None:
    found = repairs.fix(CASES / "crf_forward_unreachable" / "script.py")
    assert all(f["verdict"] != "verified" for f in found["fixes"])
    assert any("leaps to" in f["evidence"] for f in found["fixes"])


def test_nothing_is_proposed_for_a_healthy_program(repairs: RepairServer) -> None:
    found = repairs.fix(CASES.parent / "healthy" / "double_where.py")
    assert found["anomaly"] is None
    assert found["fixes"] == []


def test_installed_packages_are_left_alone(repairs: RepairServer, tmp_path: Path) -> None:
    package = tmp_path / "site-packages"
    package.mkdir()
    write(
        package, "import torch\ndef entropy(p):\n    return -(p * torch.log(p)).sum()\n", "lib.py"
    )
    script = write(
        tmp_path,
        """
        import sys
        sys.path.insert(0, "site-packages")
        import torch
        from lib import entropy
        w = torch.zeros(3, requires_grad=True)
        optimizer = torch.optim.SGD([w], lr=0.1)
        loss = entropy(w)
        loss.backward()
        optimizer.step()
        """,
    )
    found = repairs.fix(script)
    assert found["anomaly"] == "log_nonpositive"
    assert not [f for f in found["fixes"] if "lib.py" in (f["patch"] or "")]


def test_the_result_is_never_just_cleaned(repairs: RepairServer) -> None:
    """`nan_to_num` on a loss or a gradient hides the failure and mends nothing."""
    for name in ("grad_nan_to_num_log", "translation_mask_times_inf", "metric_unit_sphere_blank"):
        for fix in repairs.fix(CASES / name / "script.py")["fixes"]:
            added = [line for line in fix["patch"].splitlines() if line.startswith("+")]
            removed = [line for line in fix["patch"].splitlines() if line.startswith("-")]
            assert sum("nan_to_num" in a for a in added) <= sum("nan_to_num" in r for r in removed)


def test_a_floor_under_a_likelihood_that_underflows_at_once_is_refused(
    repairs: RepairServer, tmp_path: Path
) -> None:
    """The loss would be the logarithm of the floor, at every step, and nothing would be learnt."""
    script = write(
        tmp_path,
        """
        import torch

        torch.manual_seed(0)
        w = torch.randn(200, requires_grad=True)
        optimizer = torch.optim.SGD([w], lr=0.1)
        for step in range(6):
            loss = -torch.log(2 * torch.prod(torch.sigmoid(w) * 0.3) + 0.0 * w.sum())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
    )
    floors = [f for f in repairs.fix(script)["fixes"] if f["kind"] == "clamp_argument"]
    assert [f["verdict"] for f in floors] == ["failed"]
    assert "every gradient is 0 from step 0 on" in floors[0]["evidence"]


def test_a_weight_of_one_over_a_floor_is_refused(repairs: RepairServer, tmp_path: Path) -> None:
    script = write(
        tmp_path,
        """
        import torch

        torch.manual_seed(0)
        counts = torch.tensor([0.5, 0.25, 0.0])
        weights = 1 / counts
        w = torch.zeros(3, requires_grad=True)
        optimizer = torch.optim.Adam([w], lr=0.01)
        for step in range(30):
            kind = 2 if step % 7 == 6 else step % 2
            loss = weights[kind] * (w[kind] - 1).square()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
    )
    fixes = [f for f in repairs.fix(script)["fixes"] if f["kind"] == "clamp_denominator"]
    assert [f["verdict"] for f in fixes] == ["failed"]
    assert "the loss leaps to" in fixes[0]["evidence"]


def test_one_huge_gradient_is_clipped_before_the_rate_is_lowered(
    repairs: RepairServer, tmp_path: Path
) -> None:
    script = write(
        tmp_path,
        """
        import torch

        w = torch.full((3,), 10.0, requires_grad=True)
        optimizer = torch.optim.SGD([w], lr=0.1)
        for step in range(40):
            loss = (w ** 16).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
    )
    found = repairs.fix(script)
    assert (found["fixes"][0]["kind"], found["fixes"][0]["verdict"]) == (
        "clip_grad_norm",
        "verified",
    )
    rates = [f["verdict"] for f in found["fixes"] if f["kind"] == "lower_lr"]
    assert set(rates) <= {"not_tried"}


def test_a_second_guard_comes_before_another_course_of_the_training(
    repairs: RepairServer, tmp_path: Path
) -> None:
    script = write(
        tmp_path,
        """
        import torch

        torch.manual_seed(0)
        x = torch.rand(40) + 0.5
        w = torch.ones(1, requires_grad=True)
        optimizer = torch.optim.SGD([w], lr=0.01)
        for step in range(30):
            p = x * w if step != 3 else x * w * (x > 0.7)
            some = torch.log(p).mean()
            others = torch.log(2 * p).mean()
            loss = (some - 1) ** 2 + (others - 1) ** 2
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
    )
    first, *others = repairs.fix(script)["fixes"]
    assert (first["kind"], first["verdict"]) == ("clamp_argument+clamp_argument", "verified")
    assert {f["verdict"] for f in others if f["kind"] in ("lower_lr", "clip_grad_norm")} <= {
        "not_tried"
    }

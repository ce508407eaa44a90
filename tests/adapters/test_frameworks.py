"""Programs that leave the loop to a framework, under `whynan run` with no adapter."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import ForkServer, words_of_whynan

PROGRAMS = Path(__file__).parents[1] / "programs"
# The program, the user's own line at fault, and the step that first meets the bad row.
FAILING = [
    ("lightning_trainer", ("bad",), "unit = x / x.norm(dim=1, keepdim=True)", 11),
    ("lightning_trainer", ("bad", "stream"), "unit = x / x.norm(dim=1, keepdim=True)", 12),
    ("accelerate_loop", ("bad",), "share = x / x.sum(1, keepdim=True)", 18),
    ("accelerate_loop", ("bad", "accumulate"), "share = x / x.sum(1, keepdim=True)", 9),
    ("transformers_trainer", ("bad",), "pooled = (hidden * mask).sum(1) / mask.sum(1)", 12),
    ("transformers_trainer", ("bad", "accumulate"), "pooled = (hidden * mask).sum(1) / mask.sum(1)", 6),
]  # fmt: skip
HEALTHY = [
    ("lightning_trainer", ()),
    ("lightning_trainer", ("stream",)),
    ("accelerate_loop", ("accumulate",)),
    ("transformers_trainer", ()),
    ("transformers_tags", ()),
]


@pytest.fixture(scope="module")
def frameworks() -> Iterator[ForkServer]:
    server = ForkServer("lightning", "transformers", "accelerate", "transformers.trainer")
    yield server
    server.close()


@pytest.mark.parametrize(("name", "args", "source", "step"), FAILING)
def test_the_users_line_is_named_by_repeating_the_step(
    name: str, args: tuple[str, ...], source: str, step: int, frameworks: ForkServer, tmp_path: Path
) -> None:
    result = frameworks.run(PROGRAMS / f"{name}.py", *args, cwd=tmp_path, mode="auto")
    assert result.report is not None, result.stderr
    first = result.report["anomalies"][0]
    assert first["location"]["source"] == source
    assert first["location"]["file"].endswith(f"{name}.py")
    assert (first["step"], first["phase"], first["mechanism"]) == (
        step,
        "forward",
        "division_by_zero",
    )
    assert result.report["reproduced"] == "rewind"
    assert result.code == 3
    assert "Traceback" not in result.stderr
    assert "stepped aside" not in result.stderr


def test_a_batch_without_labels_whose_gradients_are_0_is_no_harm(
    frameworks: ForkServer, tmp_path: Path
) -> None:
    """Its loss is NaN; what is learnt from it is nothing."""
    result = frameworks.run(PROGRAMS / "transformers_tags.py", "bad", cwd=tmp_path, mode="auto")
    assert result.report is not None, result.stderr
    assert (result.code, result.report["anomalies"]) == (0, [])


@pytest.mark.parametrize(("name", "args"), HEALTHY)
@pytest.mark.parametrize("live_steps", [0, 5])
def test_a_healthy_program_ends_with_the_same_bits(
    name: str, args: tuple[str, ...], live_steps: int, frameworks: ForkServer, tmp_path: Path
) -> None:
    script = PROGRAMS / f"{name}.py"
    plain = frameworks.run(script, *args, cwd=tmp_path, traced=False)
    watched = frameworks.run(script, *args, cwd=tmp_path, mode="auto", live_steps=live_steps)
    assert plain.code == 0, plain.stderr
    assert watched.stdout.splitlines()[-1] == plain.stdout.splitlines()[-1]  # a digest of all
    assert watched.code == 0
    assert words_of_whynan(watched.stderr) == []
    assert watched.report is not None
    assert watched.report["anomalies"] == []


@pytest.mark.parametrize("live_steps", [0, 40])
@pytest.mark.parametrize("name", ["lightning_trainer", "accelerate_loop", "transformers_trainer"])
def test_skipping_leaves_the_model_finite(
    name: str, live_steps: int, frameworks: ForkServer, tmp_path: Path
) -> None:
    result = frameworks.run(
        PROGRAMS / f"{name}.py", "bad", cwd=tmp_path,
        mode="auto", on_anomaly="skip", live_steps=live_steps,
    )  # fmt: skip
    assert "update(s), at step" in result.stderr
    assert result.stderr.count("error[N010]") == 1
    assert result.stdout.splitlines()[-1].endswith("finite"), result.stdout
    assert result.code == 3


def test_skipping_in_an_accelerate_loop_equals_leaving_the_batch_out_by_hand(
    frameworks: ForkServer, tmp_path: Path
) -> None:
    script = PROGRAMS / "accelerate_loop.py"
    by_hand = frameworks.run(script, "bad", "drop", cwd=tmp_path, traced=False)
    skipped = frameworks.run(script, "bad", cwd=tmp_path, mode="auto", on_anomaly="skip")
    assert by_hand.code == 0, by_hand.stderr
    assert skipped.stdout == by_hand.stdout

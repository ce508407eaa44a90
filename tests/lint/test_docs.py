"""The pages in docs/rules are those of the rules, and the linter judges its own project."""

from __future__ import annotations

from pathlib import Path

from whynan.explain.rule_pages import rule_pages
from whynan.lint.files import find
from whynan.lint.runner import Task, run
from whynan.lint.selection import Config

ROOT = Path(__file__).resolve().parents[2]


def test_rule_pages_are_up_to_date() -> None:
    folder = ROOT / "docs" / "rules"
    written = {p.name: p.read_text(encoding="utf-8") for p in folder.glob("*.md")}
    assert written == rule_pages(), "run `make rules`"


def lint(folder: Path) -> dict[tuple[str, int], str]:
    config = Config(root=ROOT)
    results = list(run(find([str(folder)], config), Task(select=(), ignore=(), config=config)))
    assert not [r.unread for r in results if r.unread]
    return {
        (str(Path(f.path).relative_to(folder)), f.line): f.slug for r in results for f in r.findings
    }


def test_healthy_programs_give_only_true_findings() -> None:
    # These run healthily on their own data; each finding below is right about some other data.
    assert lint(ROOT / "tests" / "healthy") == {
        # a row whose sensor is silent throughout has no visible key
        ("accumulate_checkpoint_float64.py", 30): "neginf-softmax",
        # nobody's end was seen: all are censored
        ("censored_survival.py", 14): "empty-mean",
        # an image without a positive anchor: the program's loss is NaN there, and it lets that be
        ("detector_no_positive_anchor.py", 35): "empty-mean",
        # a sigmoid by hand, differentiable in principle
        ("eval_gate_exit_4.py", 12): "sigmoid-hand",
        ("func_vmap_grad.py", 17): "neginf-softmax",
        ("func_vmap_grad.py", 45): "expm1",
        ("gp_cholesky_jitter.py", 23): "exp-logvar",
        # the program repairs the NaN gradient that this makes
        ("repair_gradients.py", 15): "sqrt-sum-sq",
    }


def test_failing_programs_of_the_catalogue_are_caught_where_their_pattern_is_visible() -> None:
    found = lint(ROOT / "tests" / "cases")
    lines = {(path.split("/")[0], slug) for (path, _), slug in found.items()}
    assert {
        ("angular_contrastive_acos", "acos-unclamped"),
        ("distill_log_of_softmax", "log-softmax"),
        ("gp_marginal_likelihood_det", "log-det"),
        ("grad_coulomb_where_sqrt", "sqrt-sum-sq"),
        ("grad_isolated_node_where", "where-unsafe"),
        ("grad_nan_to_num_log", "mask-by-multiply"),
        ("grad_ppo_ratio", "ppo-ratio"),
        ("grad_quaternion_acos", "acos-clamp-one"),
        ("hetero_regression_precision", "exp-logvar"),
        ("metric_unit_sphere_blank", "div-norm"),
        ("opt_half_adam", "adam-half"),
        ("retrieval_expanded_distances", "pairwise-expand"),
        ("seg_ignore_masked_mean", "masked-mean"),
        ("sensor_window_minmax", "minmax-norm"),
        ("translation_mask_times_inf", "inf-times-mask"),
        ("vae_exp_logvar", "exp-logvar"),
    } <= lines


def test_installed_torch_is_read_without_failing_and_with_few_findings() -> None:
    import torch

    folder = Path(torch.__file__).parent
    config = Config(root=folder)
    files = find([str(folder / part) for part in ("distributions", "nn", "optim")], config)
    results = list(run(files, Task(select=("error", "warning"), ignore=(), config=config)))
    assert not [r.unread for r in results if r.unread]
    findings = [f for r in results for f in r.findings]
    # One in ten files at most: this is numerical code written with care.
    assert len(findings) <= len(files) / 10

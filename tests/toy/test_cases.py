"""What is found on a device is what is found on the CPU: line, phase, step, mechanism.

A sample; `pytest tests/toy --every-case` runs them all, recorded and guarded.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness import ForkServer
from tests.test_cases import CASES

# These do on a device what the program does not do on the CPU.
LEFT_OUT = {
    "cached_features_reload": "mixes what it loaded with tensors of the device",
    "exec_autocast_contrastive": 'asks for `autocast("cpu")`, which does nothing on a device',
    "kernel_race_scale": "replaces a kernel of the CPU",
    "kernel_wrong_layer_norm": "replaces a kernel of the CPU",
    "lstm_packed_single_event": "packs by lengths that have to be on the CPU",
    "opt_rmsprop_centered": "torch updates in another order there (foreach), and stays finite",
    "retrieval_expanded_distances": "hands a tensor to NumPy",
    "rnn_empty_hidden_state": "reads memory that nobody wrote, and other memory there",
    "seismic_custom_op": "hands a tensor to NumPy",
    "survey_numpy_log_income": "mixes what NumPy made with tensors of the device",
    "worker_dataset_zscore": "computes on the device in forked workers, as CUDA would not allow",
}
# One of each kind: backward, optimizers, absorbed overflows, threads, checkpoints, higher derivatives.
TRACED = {
    "exec_checkpoint_router", "exec_inplace_logmel", "exec_maml_rmse", "exec_out_slice", "exec_thread_distill",
    "grad_custom_backward", "grad_hook_scale", "grad_svd_rotation", "grad_wgan_penalty", "opt_half_adam",
    "silent_clip_transformer", "silent_rmsnorm_half", "translation_mask_times_inf",
}  # fmt: skip
GUARDED = {
    "charlm_temperature_sampling", "csv_missing_value", "exec_lbfgs_weibull", "exec_vmap_poincare",
    "fp16_attention_scores", "grad_coulomb_where_sqrt", "grad_half_accumulate", "opt_adam_eps_zero",
    "opt_handwritten_rmsprop", "opt_sgd_diverges", "silent_hand_clip", "vae_exp_logvar",
}  # fmt: skip
OTHER_CAUSES = {"opt_half_adam"}  # foreach rounds eps where the plain loop rounds the quotient


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" not in metafunc.fixturenames:
        return
    every = metafunc.config.getoption("--every-case")
    cases = [c for c in CASES if c.name not in LEFT_OUT]
    chosen = [
        (case, mode)
        for mode, sample in (("trace", TRACED), ("auto", GUARDED))
        for case in cases
        if every or case.name in sample
    ]
    metafunc.parametrize(("case", "mode"), chosen, ids=[f"{c.name}-{m}" for c, m in chosen])


def test_the_lists_name_cases_that_exist() -> None:
    names = {case.name for case in CASES}
    assert (LEFT_OUT.keys() | TRACED | GUARDED) <= names
    assert not LEFT_OUT.keys() & (TRACED | GUARDED)


def test_the_same_is_found_on_a_device(case: Path, mode: str, programs: ForkServer) -> None:
    expected = json.loads((case / "expected.json").read_text())
    result = programs.run(case / "script.py", mode=mode, device="toy")
    assert result.report is not None, result.stderr
    assert result.report["anomalies"], f"no harm seen\n{result.stderr}"
    first = result.report["anomalies"][0]
    seen = {**first, **{k: first["location"][k] for k in ("file", "line")}}
    keys = ("file", "line", "phase", "step", "mechanism", "value", "sink", "module")
    asked = [k for k in keys if k in expected]
    assert {k: seen[k] for k in asked} == {k: expected[k] for k in asked}
    if mode == "trace" and case.name not in OTHER_CAUSES:
        assert set(expected["causes"]) <= {cause["code"] for cause in first["causes"]}
    troubles = ("stepped aside", "could not be recorded", "not all is known")
    assert not [n for n in result.report["notes"] if any(t in n for t in troubles)]

"""The libraries that come before torch at the top of a script do not keep whynan away.

Many of them only ask whether torch is there, others import it in their own middle. Each one is the
first import of a process of its own.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.run.starting import run, write

LIBRARIES = [
    "accelerate",
    "botorch",
    "captum",
    "datasets",
    "diffusers",
    "e3nn",
    "einops",
    "equinox",
    "evaluate",
    "gpytorch",
    "higher",
    "huggingface_hub",
    "ignite",
    "jax",
    "jaxtyping",
    "kornia",
    "lightning",
    "monai",
    "opacus",
    "optuna",
    "pandas",
    "peft",
    "pyro",
    "pytorch_lightning",
    "pytorch_metric_learning",
    "safetensors.torch",
    "sentence_transformers",
    "sklearn",
    "skorch",
    "stable_baselines3",
    "tensordict",
    "tensorly",
    "torch_geometric",
    "torchdiffeq",
    "torchinfo",
    "torchmetrics",
    "torchsde",
    "transformers",
    "trl",
    "zuko",
]
PLANTED = "loss = torch.log(weight - 1).sum()"
TRAINING = f"""
import torch
weight = torch.ones(3, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
for step in range(3):
    {PLANTED}
    optimizer.zero_grad(); loss.backward(); optimizer.step()
"""


@pytest.mark.parametrize(
    ("library", "mode"),
    [(library, "auto") for library in LIBRARIES]
    + [(library, "trace") for library in ("datasets", "safetensors.torch", "transformers")],
)
def test_a_planted_nan_is_found_below_the_import_of(
    library: str, mode: str, tmp_path: Path
) -> None:
    write(tmp_path, f"import {library}\n{TRAINING}")
    done = run(
        "--json", "report.json", "--mode", mode, "script.py", cwd=tmp_path, HF_HUB_OFFLINE="1"
    )
    assert done.returncode == 3, done.stderr
    first, *_ = json.loads((tmp_path / "report.json").read_text())["anomalies"]
    assert first["location"]["source"] == PLANTED

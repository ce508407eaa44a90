"""The callbacks in the frameworks' own trainers: stop, skip, warn, and what is left behind."""

from __future__ import annotations

import json
import logging
import warnings
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from accelerate import Accelerator
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn
from torch.utils.data import DataLoader, Dataset
from transformers import Trainer, TrainingArguments

import whynan
from tests.harness import words_of_whynan
from tests.watching.test_watch import state_of_torch
from whynan.adapters import accelerate as accelerate_adapter
from whynan.adapters.lightning import WhynanCallback as LightningCallback
from whynan.adapters.transformers import WhynanCallback as TransformersCallback

pytestmark = pytest.mark.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
LINE = "share = x / x.sum(1, keepdim=True)"


class Rows(Dataset[dict[str, torch.Tensor]]):
    def __init__(self, bad: int | None) -> None:
        self.x = torch.rand(64, 5) + 0.1
        if bad is not None:
            self.x[bad] = 0

    def __len__(self) -> int:
        return 64

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        return {"x": self.x[i], "labels": self.x[i].sum()}


class Model(lightning.LightningModule):
    """Good for all three."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        share = x / x.sum(1, keepdim=True)
        return {"loss": (self.net(share).squeeze(-1) - labels).square().mean()}

    def training_step(self, batch: dict[str, torch.Tensor], index: int) -> torch.Tensor:
        loss: torch.Tensor = self(**batch)["loss"]
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def fit(callback: Any, folder: Path, bad: int | None = 40) -> Model:
    torch.manual_seed(0)
    model, loader = Model(), DataLoader(Rows(bad), batch_size=4, shuffle=True)
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", callbacks=[callback], enable_progress_bar=False,
        logger=[CSVLogger(folder, name="csv"), TensorBoardLogger(folder, name="board")],
        enable_checkpointing=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(model, loader)
    return model


def train(callback: Any, folder: Path, bad: int | None = 40, **options: Any) -> Model:
    torch.manual_seed(0)
    model = Model()
    arguments = TrainingArguments(
        output_dir=str(folder), num_train_epochs=2, per_device_train_batch_size=4, use_cpu=True,
        report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True, **options,
    )  # fmt: skip
    Trainer(model=model, args=arguments, train_dataset=Rows(bad), callbacks=[callback]).train()
    return model


RUNS = pytest.mark.parametrize(
    ("run", "callback"), [(fit, LightningCallback), (train, TransformersCallback)]
)


def is_finite(model: nn.Module) -> bool:
    return all(bool(t.isfinite().all()) for t in model.state_dict().values())


@RUNS
def test_stop_raises_with_the_users_line_and_keeps_the_step(
    run: Any, callback: Any, tmp_path: Path
) -> None:
    torch.optim.Adam([nn.Parameter(torch.ones(1))])
    before = state_of_torch()
    with pytest.raises(whynan.AnomalyFound) as caught:
        run(callback(capsule=tmp_path / "capsule"), tmp_path)
    diagnosis = caught.value.diagnosis
    site = diagnosis.anomalies[0].origin.site
    assert site is not None
    assert site.source == LINE
    assert diagnosis.reproduced in ("rewind", "live")
    assert state_of_torch() == before
    manifest = json.loads((tmp_path / "capsule" / "capsule.json").read_text())
    assert set(manifest["batches"][0]) == {"x", "labels"}
    assert whynan.load(tmp_path / "capsule" / "recording.json").evidence


@RUNS
def test_skip_ends_with_finite_weights_and_says_what_it_left_out(
    run: Any, callback: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = callback("skip")
    assert is_finite(run(mine, tmp_path))
    assert len(mine.skipped) == 2
    assert capsys.readouterr().err.count("error[N010]") == 1


@RUNS
def test_warn_goes_on_to_the_end(
    run: Any, callback: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = callback("warn")
    assert not is_finite(run(mine, tmp_path))
    assert mine.diagnosis is not None
    assert capsys.readouterr().err.count("error[N010]") == 1


@RUNS
def test_a_healthy_training_is_the_same_with_and_without(
    run: Any, callback: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain: Any = lightning.Callback() if callback is LightningCallback else None
    if plain is None:
        from transformers import TrainerCallback

        plain = TrainerCallback()
    expected, mine = run(plain, tmp_path / "plain", None).state_dict(), callback()
    watched = run(mine, tmp_path / "watched", None).state_dict()
    assert all(torch.equal(expected[k], watched[k]) for k in expected)
    assert mine.diagnosis is None
    assert words_of_whynan(capsys.readouterr().err) == []


@RUNS
def test_a_wrong_policy_is_refused(run: Any, callback: Any) -> None:
    with pytest.raises(whynan.WhynanError, match="stop, skip or warn"):
        callback("ignore")


def test_the_report_stands_in_lightnings_logs(tmp_path: Path) -> None:
    with pytest.raises(whynan.AnomalyFound):
        fit(LightningCallback(), tmp_path)
    assert LINE in (tmp_path / "csv/version_0/whynan.txt").read_text()
    report = json.loads((tmp_path / "csv/version_0/whynan.json").read_text())
    assert report["anomalies"][0]["location"]["source"] == LINE
    board = EventAccumulator(str(tmp_path / "board/version_0"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        board.Reload()
    assert "whynan/N010/text_summary" in board.Tags()["tensors"]


def test_the_report_says_that_the_trainers_log_hides_nan_losses(tmp_path: Path) -> None:
    with pytest.raises(whynan.AnomalyFound, match="logging_nan_inf_filter=False shows them"):
        train(TransformersCallback(), tmp_path)
    assert "logging_nan_inf_filter" in (tmp_path / "whynan.txt").read_text()
    with pytest.raises(whynan.AnomalyFound) as caught:
        train(TransformersCallback(), tmp_path, logging_nan_inf_filter=False)
    assert "logging_nan_inf_filter" not in str(caught.value)


def test_an_error_of_the_users_own_passes_through_lightning(tmp_path: Path) -> None:
    class Broken(LightningCallback):
        def on_train_batch_start(self, *args: Any, **kwargs: Any) -> None:
            raise KeyError("mine")

    torch.optim.Adam([nn.Parameter(torch.ones(1))])
    before = state_of_torch()
    with pytest.raises(KeyError, match="mine"):
        fit(Broken(), tmp_path)
    assert state_of_torch() == before


@pytest.mark.parametrize("policy", ["stop", "skip"])
def test_a_loop_of_accelerate(policy: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True, project_dir=str(tmp_path))
    plain = Model()
    model, optimizer, loader = accelerator.prepare(
        plain, plain.configure_optimizers(), DataLoader(Rows(40), batch_size=4, shuffle=True)
    )

    def loop() -> None:
        with accelerate_adapter.watch(accelerator, on_anomaly=policy) as watching:
            for batch in loader:
                accelerator.backward(model(**batch)["loss"])
                optimizer.step()
                optimizer.zero_grad()
        assert len(watching.skipped) == 1

    if policy == "stop":
        with pytest.raises(whynan.AnomalyFound, match="divided 0 by"):
            loop()
    else:
        loop()
    assert all(p.isfinite().all() for p in plain.parameters())
    assert LINE in (tmp_path / "whynan.txt").read_text()

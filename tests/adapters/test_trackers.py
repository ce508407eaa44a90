"""What a tracker is handed, by stand-ins that keep what they are given.

The libraries themselves bring some thirty packages. They were tried by hand, as the changes say.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import whynan
from whynan.adapters import trackers

FILES = ["whynan.html", "whynan.json", "whynan.txt"]


class Run:
    """The part of wandb's run that is used."""

    def __init__(self) -> None:
        self.id = "7"
        self.summary: dict[str, str] = {}
        self.kept: list[Any] = []

    def log_artifact(self, path: str, name: str, type: str) -> None:
        self.kept.append((sorted(p.name for p in Path(path).iterdir()), name, type))


class Client:
    """The part of MLflow's client that is used."""

    def __init__(self) -> None:
        self.kept: list[Any] = []
        self.tags: dict[str, str] = {}

    def log_artifacts(self, run_id: str, local_dir: str, artifact_path: str) -> None:
        self.kept.append((run_id, sorted(p.name for p in Path(local_dir).iterdir()), artifact_path))

    def set_tag(self, run_id: str, key: str, value: str) -> None:
        self.tags[key] = value


class Unreachable(Run):
    def log_artifact(self, path: str, name: str, type: str) -> None:
        raise ConnectionError("no network")


@pytest.fixture(scope="module")
def diagnosis() -> whynan.Diagnosis:
    with whynan.trace() as recording:
        weight = torch.zeros(3, requires_grad=True)
        (weight / weight.detach()).sum().backward()
        torch.optim.SGD([weight], lr=0.1).step()
    return whynan.diagnose(recording)


def test_wandb_gets_an_artifact_and_the_headline(diagnosis: whynan.Diagnosis) -> None:
    run = Run()
    trackers.to_run(diagnosis, run)
    assert run.kept == [(FILES, "whynan-7", "report")]
    assert run.summary == {"whynan": diagnosis.anomalies[0].finding.headline}


def test_mlflow_gets_artifacts_and_a_tag(diagnosis: whynan.Diagnosis) -> None:
    client = Client()
    trackers.to_client(diagnosis, client, "run")
    assert client.kept == [("run", FILES, "whynan")]
    assert client.tags == {"whynan": diagnosis.anomalies[0].finding.headline}


def test_only_what_the_program_reports_to_is_handed_anything(
    diagnosis: whynan.Diagnosis, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run()
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(run=run))
    trackers.to_open_runs(diagnosis, ["tensorboard"])
    assert run.kept == []
    trackers.to_open_runs(diagnosis, ["wandb", "mlflow"])
    assert len(run.kept) == 1


def test_a_tracker_that_fails_is_told_of_and_costs_nothing_else(
    diagnosis: whynan.Diagnosis, capsys: pytest.CaptureFixture[str]
) -> None:
    trackers.to_run(diagnosis, Unreachable())
    assert "could not be handed on: ConnectionError('no network')" in capsys.readouterr().err

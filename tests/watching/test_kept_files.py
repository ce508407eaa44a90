"""The files that a failing step leaves: private where they hold data, each written for itself."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Literal

import pytest
import torch

import whynan
from tests.harness import ForkServer
from tests.watching.test_policies import written

TRAIN = """
import os, sys
import torch
BEFORE
torch.manual_seed(0)
rows = torch.rand(72, 6) + 0.1
rows[57] = 0
model = torch.nn.Sequential(torch.nn.Linear(6, 20_000), torch.nn.Linear(20_000, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
for (x,) in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows), batch_size=8):
    loss = model(x / x.norm(dim=1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("trained")
"""
# Files over 200 kB cannot be written, as on a disk that is nearly full: the weights are larger.
FULL = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))"


def script(folder: Path, before: str = "") -> Path:
    return written(folder, TRAIN.replace("BEFORE", before))


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("policy", ["stop", "skip", "warn"])
def test_a_capsule_on_a_full_disk_costs_what_does_not_fit(
    policy: Literal["stop", "skip", "warn"], programs: ForkServer, tmp_path: Path
) -> None:
    capsule = tmp_path / "capsule"
    done = programs.run(
        script(tmp_path, FULL), mode="auto", on_anomaly=policy, capsule=str(capsule)
    )
    assert done.code == 3
    assert done.stdout == ("" if policy == "stop" else "trained\n")
    assert "could not write the capsule" in done.stderr
    assert done.stderr.count("error[N010]") == 1
    assert done.report is not None
    assert done.report["anomalies"]
    assert sorted(os.listdir(capsule)) == ["capsule.json", "recording.json"]
    assert whynan.load(capsule / "recording.json").evidence
    assert json.loads((capsule / "capsule.json").read_text())["step"] == 7


def test_a_capsule_is_for_its_owner_alone_and_keeps_no_secret(
    programs: ForkServer, tmp_path: Path
) -> None:
    capsule = tmp_path / "capsule"
    before = "os.environ['TORCH_HUB_TOKEN'] = 's3cr3t'"
    done = programs.run(
        script(tmp_path, before), "--api-key", "s3cr3t", "--lr", "0.5",
        mode="auto", capsule=str(capsule),
    )  # fmt: skip
    assert done.code == 3, done.stderr
    assert mode_of(capsule) == 0o700
    files = list(capsule.iterdir())
    assert {f.name for f in files} == {"capsule.json", "recording.json", "tensors.safetensors"}
    assert {mode_of(f) for f in files} == {0o600}
    assert b"s3cr3t" not in b"".join(f.read_bytes() for f in files)
    assert json.loads((capsule / "capsule.json").read_text())["program"][-2:] == ["--lr", "0.5"]


@pytest.mark.parametrize("mode", ["auto", "guard"])
def test_a_batch_is_written_beside_a_link_that_lies_in_wait(
    mode: str, programs: ForkServer, tmp_path: Path
) -> None:
    (tmp_path / "mine").write_text("precious")
    (tmp_path / "batch.pt.part").symlink_to(tmp_path / "mine")
    done = programs.run(script(tmp_path), mode=mode, save_batch=str(tmp_path / "batch.pt"))
    assert done.code == 3
    assert (tmp_path / "mine").read_text() == "precious"
    assert torch.load(tmp_path / "batch.pt")["inputs"][0].shape == (8, 6)
    assert {f.name for f in tmp_path.iterdir()} == {
        "mine",
        "batch.pt",
        "batch.pt.part",
        "script.py",
    }


def test_a_batch_goes_into_a_device_and_does_not_replace_it(
    programs: ForkServer, tmp_path: Path
) -> None:
    (tmp_path / "batch.pt").symlink_to(os.devnull)  # a link: the machine keeps its device
    done = programs.run(script(tmp_path), mode="auto", save_batch=str(tmp_path / "batch.pt"))
    assert (done.code, (tmp_path / "batch.pt").is_symlink()) == (3, True), done.stderr

"""A value that a file has brought in is named: the tensor, its place in it, the file, the call."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness import ForkServer

SCRIPT = """
import torch
from torch import nn
from safetensors.torch import load_file, save_file
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Sequential(nn.Linear(6, 2)))
state = {name: tensor.clone() for name, tensor in net.state_dict().items()}
state[BAD] = state[BAD].index_fill(0, torch.tensor([1]), float("inf"))
SAVE
LOAD
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    loss = net(torch.randn(8, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
WAYS = {
    "torch.load": (
        'torch.save({"model": state, "epoch": 3}, "last.pt")',
        'kept = torch.load("last.pt"); net.load_state_dict(kept["model"])',
    ),
    "torch.load, assigned": (
        'torch.save(state, "last.pt")',
        'net.load_state_dict(torch.load(f="last.pt"), assign=True)',
    ),
    "safetensors": (
        'save_file(state, "last.safetensors")',
        'net.load_state_dict(load_file(filename="last.safetensors"))',
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("bad", ["2.0.weight", "0.bias"])
def test_the_tensor_its_place_its_file_and_the_call_are_named(
    way: str, bad: str, programs: ForkServer, tmp_path: Path
) -> None:
    save, load = WAYS[way]
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("BAD", repr(bad)).replace("SAVE", save).replace("LOAD", load))
    result = programs.run(script, mode="auto")
    assert result.report is not None
    found = result.report["anomalies"][0]
    held = "a non-finite value" if way == "safetensors" else "inf"
    assert f"parameter {bad} already held {held} when it was loaded" in found["headline"]
    assert found["location"]["source"] == load
    file = "last.safetensors" if way == "safetensors" else "last.pt"
    said = " ".join(result.stderr.split())
    assert f"it was loaded from {file}" in said
    assert f"`whynan check {file}`" in said
    assert ("first at [1, 0]" if "weight" in bad else "first at [1]") in said
    assert [cause["code"] for cause in found["causes"]] == ["poisoned_state"]

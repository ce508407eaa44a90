"""Files in other encodings than UTF-8: read as Python reads them, and written back as they were."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.repair.forked import RepairServer

HEADS = {
    "latin-1": "# -*- coding: latin-1 -*-\n# Björn's gate\n",
    "utf-8-sig": "# Björn's gate\n",
}
SIGMOID = """import torch


def gate(z):
    return 1.0 / (1.0 + torch.exp(-z))  # größer


w = torch.tensor([-200.0, 1.0], requires_grad=True)
optimizer = torch.optim.SGD([w], lr=0.1)
for step in range(3):
    loss = gate(w).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("encoding", HEADS)
def test_a_script_in_its_own_encoding_is_changed(
    repairs: RepairServer, tmp_path: Path, encoding: str
) -> None:
    script = tmp_path / "gate.py"
    script.write_bytes((HEADS[encoding] + SIGMOID).encode(encoding))
    found = repairs.fix(script)
    assert (found["fixes"][0]["kind"], found["fixes"][0]["verdict"]) == ("sigmoid", "verified")
    added = [line for line in found["fixes"][0]["patch"].splitlines() if line.startswith("+ ")]
    assert added == ["+    return torch.sigmoid(z)  # größer"]


ACROSS = """import torch

def squash(z):
    return torch.sigmoid(z)

w = torch.tensor([-200.0, 1.0], requires_grad=True)
optimizer = torch.optim.SGD([w], lr=0.1)
for step in range(3):
    loss = -torch.log(squash(w)).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    "neighbour",
    [
        "# -*- coding: latin-1 -*-\n# squash: Björn's gate\n".encode("latin-1"),
        "# squash: Björn's gate, with no word about its encoding\n".encode("latin-1"),
        b"def squash(z):\n    print 'Python 2'\n",
    ],
)
def test_a_neighbour_that_is_no_utf8_hides_nothing(
    repairs: RepairServer, tmp_path: Path, neighbour: bytes
) -> None:
    (tmp_path / "neighbour.py").write_bytes(neighbour)
    script = tmp_path / "train.py"
    script.write_text(ACROSS)
    first = repairs.fix(script)["fixes"][0]
    assert (first["kind"], first["verdict"]) == ("logsigmoid", "verified")

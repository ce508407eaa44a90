"""Programs on public libraries: one that fails and a healthy one for each, run as `whynan run` does.

`tests/libraries/<name>/` holds `fails.py` and `healthy.py` (or packages of these names), and what is
true of the failing one. The libraries are loaded once, in the process that the programs are forked
from; tiny random models and made-up data keep each of them short.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness import ForkServer, Result, words_of_whynan

FOLDER = Path(__file__).parent / "libraries"
NAMES = sorted(path.parent.name for path in FOLDER.glob("*/expected.json"))
LOADED = (
    "accelerate", "datasets", "diffusers", "gpytorch", "lightning", "peft", "pyro", "tokenizers",
    "torch_geometric.loader", "torch_geometric.nn", "torchdiffeq", "transformers.trainer", "trl",
)  # fmt: skip


@pytest.fixture(scope="module")
def libraries() -> Iterator[ForkServer]:
    server = ForkServer(*LOADED)
    yield server
    server.close()


def run(server: ForkServer, name: str, which: str, *, traced: bool) -> Result:
    module = truth(name).get("module")
    folder = FOLDER / name / (which if module else "")
    script = folder / (module or f"{which}.py")
    return server.run(
        script, cwd=folder, traced=traced, module=module, **({"mode": "auto"} if traced else {})
    )


def truth(name: str) -> dict[str, Any]:
    expected: dict[str, Any] = json.loads((FOLDER / name / "expected.json").read_text())
    return expected


@pytest.mark.parametrize("name", NAMES)
def test_the_origin_is_found_in_a_program_on(name: str, libraries: ForkServer) -> None:
    expected = truth(name)
    done = run(libraries, name, "fails", traced=True)
    assert done.code == 3, done.stderr
    assert done.report is not None
    first, *_ = done.report["anomalies"]
    place = first["caller"] if expected.get("library") else first["location"]
    assert (place["file"], place["line"]) == (expected.get("file", "fails.py"), expected["line"])
    for key in ("phase", "mechanism", "sink"):
        assert key not in expected or first[key] == expected[key]
    assert done.report["reproduced"] in ("live", "rewind", "body", "call")  # no second run
    if "causes" in expected:
        assert first["causes"][0]["code"] in expected["causes"]
    if "item" in expected:
        assert first["dataset_index"] == expected["item"]
    if "parameter" in expected:
        assert expected["parameter"] in first["headline"]


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_said_or_changed_in_a_healthy_program_on(
    name: str, libraries: ForkServer
) -> None:
    plain = run(libraries, name, "healthy", traced=False)
    watched = run(libraries, name, "healthy", traced=True)
    assert watched.report is not None
    assert watched.report["anomalies"] == []
    assert words_of_whynan(watched.stderr) == []
    assert without_times(watched.stdout) == without_times(plain.stdout)
    assert watched.code == plain.code


def without_times(text: str) -> list[str]:
    """What a trainer logs of its own speed differs from run to run."""
    return [line for line in text.splitlines() if "runtime" not in line and "step_time" not in line]

"""What the functions say to those who hand them the wrong things."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import whynan
from whynan.errors import UsageError

MODEL = torch.nn.Linear(2, 1)
OPTIMIZER = torch.optim.SGD(MODEL.parameters(), lr=0.1)


@pytest.mark.parametrize(
    ("given", "more", "said"),
    [
        ((OPTIMIZER, MODEL), {}, "SGD is an optimizer: whynan.watch(model, optimizer)"),
        (("model.pt",), {}, "takes a model first, not 'model.pt'"),
        ((MODEL, MODEL), {}, "takes an optimizer second, not a Linear"),
        ((MODEL, OPTIMIZER), {"writer": "runs"}, "writer is 'runs'; it takes a SummaryWriter"),
    ],
)
def test_watch_says_what_it_takes(given: tuple[Any, ...], more: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as raised, whynan.watch(*given, **more):
        pass
    assert said in str(raised.value)


@pytest.mark.parametrize("given", [None, 3.0, torch.zeros(2)])
def test_diagnose_says_what_it_takes(given: Any) -> None:
    with pytest.raises(UsageError, match=r"whynan.diagnose takes what `with whynan.trace\(\)"):
        whynan.diagnose(given)


def test_a_diagnosis_is_saved_in_the_form_its_name_asks_for(tmp_path: Path) -> None:
    with whynan.trace() as recording:
        bad = torch.log(torch.zeros(2) - 1)
    found = whynan.diagnose(recording)
    assert bad.isnan().all()
    for name in ("report.html", "report.json", "report.txt"):
        found.save(tmp_path / name)
    assert (tmp_path / "report.html").read_text().startswith("<!")
    assert json.loads((tmp_path / "report.json").read_text()) == json.loads(found.to_json())
    assert (tmp_path / "report.txt").read_text() == str(found)
    assert found.to_html().lstrip().startswith("<!")

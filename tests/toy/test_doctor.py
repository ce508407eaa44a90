"""`whynan doctor` on an accelerator whose back end torch loads by itself, as it does a vendor's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness import ROOT
from whynan.doctor.selftest import check_up

BACK_END = "def load():\n    from tests.toy import toy\n\n    toy.load()\n"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The back end as a package with an entry point."""
    folder = tmp_path / "packages"
    about = folder / "toy_back_end-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-back-end\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[torch.backends]\ntoy = toy_back_end:load\n")
    (folder / "toy_back_end.py").write_text(BACK_END)
    monkeypatch.setenv("PYTHONPATH", f"{folder}:{ROOT}")


@pytest.mark.usefixtures("installed")
def test_the_self_test_passes_on_an_accelerator_and_counts_its_waits(tmp_path: Path) -> None:
    checkup = check_up("toy", tmp_path)
    assert [c.seen for c in checkup.checks if not c.is_well] == []
    assert len(checkup.checks) == 5
    assert checkup.cost is not None
    assert checkup.cost.plain_waits is not None
    assert checkup.cost.guarded_waits is not None
    assert checkup.cost.guarded_waits - checkup.cost.plain_waits < 1.1

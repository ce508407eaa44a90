"""Private names of torch stay in the seam, and each has a row that says what happens without it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import whynan
from tests.seam.private_names import Finder, own_names
from whynan.errors import UsageError
from whynan.seam import names, support, supported
from whynan.seam.names import NAMES, Name, needed, optional
from whynan.seam.versions import HERE, release

SOURCE = Path(whynan.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
SEAM = [path for path in FILES if path.parent == SOURCE / "seam"]
OWN = own_names(FILES)
ROWS = {path.rpartition(".")[2] for path in NAMES}


def finder(text: str) -> Finder:
    return Finder(text, OWN, ROWS)


@pytest.mark.parametrize(
    "path", [p for p in FILES if p not in SEAM], ids=lambda p: str(p.relative_to(SOURCE))
)
def test_nothing_outside_the_seam_uses_a_private_name_of_torch(path: Path) -> None:
    assert finder(path.read_text()).found() == []


@pytest.mark.parametrize(
    "line",
    [
        "import torch\nx = torch._C",
        "import torch\nx = torch.nn.modules.module._has_any_global_hook()",
        "import torch._dynamo",
        "import torch._dynamo as dynamo",
        "from torch.utils._python_dispatch import TorchDispatchMode",
        "from torch.utils.data.dataloader import _BaseDataLoaderIter as Loader",
        "from torch import nn\nx = nn.Module._call_impl",
        "from torch.nn.modules import module as hooks\nhooks._global_forward_hooks.clear()",
        "import torch\nhome = torch.autograd\nx = home._engine_run_backward",
        "import torch\nx = getattr(torch.autograd, '_engine_run_backward')",
        "import torch\npatches.wrap(torch.autograd, '_engine_run_backward', wrapper)",
        "import torch\ndef f(tensor):\n    return tensor._version",
        "import torch\ndef f(iterator):\n    return getattr(iterator, '_num_yielded', 0)",
        "import torch\ndef f(module):\n    return module._non_persistent_buffers_set",
        "import importlib\nx = importlib.import_module('torch._inductor')",
        "# as torch._dynamo does",
    ],
)
def test_a_private_name_is_found_however_it_is_written(line: str) -> None:
    assert finder(line).found()


@pytest.mark.parametrize(
    "line",
    [
        "import torch\nx = torch.nn.Module.__call__",
        "import sys, torch\nx = sys._getframe(1)",
        "import torch\nclass A:\n    def f(self):\n        return self._version",
        "import torch\nx = torch.ops.aten.add.Tensor",
        "names = {'_softmax', '_foreach_norm'}",
    ],
)
def test_names_of_others_are_let_alone(line: str) -> None:
    assert not finder(line).found()


@pytest.mark.parametrize("path", SEAM, ids=lambda p: p.name)
def test_every_private_name_that_the_seam_reads_has_a_row(path: Path) -> None:
    assert finder(path.read_text()).members() <= ROWS


@pytest.mark.parametrize("name", NAMES.values(), ids=lambda name: name.path)
def test_a_name_is_there_unless_its_row_says_otherwise(name: Name) -> None:
    expected = release(name.since) <= HERE and not (name.until and release(name.until) < HERE)
    assert name.is_present() or not expected
    assert name.lost.endswith(".")
    assert name.lost.count(". ") == 0


def test_a_name_that_is_needed_is_in_every_supported_torch() -> None:
    late = [n.path for n in NAMES.values() if n.is_needed and release(n.since) > supported.OLDEST]
    assert late == []


def test_this_torch_is_supported_and_lacks_nothing_that_is_needed() -> None:
    assert support.missing() == []
    assert supported.refusal(torch) is None


@pytest.mark.parametrize(("version", "what"), [("2.4.1", "a newer"), ("3.1.0+cpu", "an older")])
def test_a_torch_outside_the_range_is_refused_in_one_sentence(version: str, what: str) -> None:
    refusal = supported.out_of_reach(version)
    assert refusal is not None
    assert f"install {what} one" in refusal
    assert version in refusal


def test_the_table_says_of_every_name_whether_it_is_here() -> None:
    rows = {row.name: row for row in support.table()}
    assert rows.keys() == NAMES.keys()
    assert rows["torch._C._storage_id"].is_present
    assert rows["torch._C._storage_id"].instead == "needed: whynan refuses"
    assert "operation by operation" in rows["torch.nn.modules.module._has_any_global_hook"].instead


def test_what_is_missing_is_refused_or_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "NAMES", {})
    monkeypatch.setattr(support, "NAMES", names.NAMES)
    wanted = needed("torch._C._not_there", since="2.0", lost="All is lost.")
    other = optional(
        "torch.nn._nor_there", len, since="9.9", instead="the length", lost="Speed is lost."
    )
    assert other([1, 2]) == 2
    with pytest.raises(UsageError, match=r"has no `torch\._C\._not_there`\. All is lost\."):
        wanted()
    refusal = supported.refusal(torch)
    assert refusal is not None
    assert "`torch._C._not_there`" in refusal
    assert "_nor_there" not in refusal
    assert support.losses() == ["Speed is lost."]
    support.remark.cache_clear()
    assert str(support.remark()).endswith(" lacks a name: speed is lost")
    support.remark.cache_clear()

"""What differs between releases of torch behaves alike in all of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from whynan.seam.versions import Mended, release, watch_storage


@pytest.mark.parametrize(
    ("version", "expected"),
    [("2.13.0+cpu", (2, 13)), ("2.7.1", (2, 7)), ("2.15.0a0+git1f2", (2, 15)), ("3.0", (3, 0))],
)
def test_a_release_is_its_first_two_numbers(version: str, expected: tuple[int, int]) -> None:
    assert release(version) == expected


@pytest.mark.parametrize("watch", [watch_storage, Mended])
def test_a_watched_storage_lives_as_long_as_a_tensor_has_it(watch: Any) -> None:
    tensor = torch.ones(3)
    weak = watch(tensor.untyped_storage())  # whose Python object dies here
    found = weak()
    assert found is not None
    del tensor  # and now nobody else has the memory
    window = torch.empty(0).set_(found, 0, (3,), (1,))
    assert window.tolist() == [1.0, 1.0, 1.0]
    del found, window
    assert weak() is None


@pytest.mark.parametrize("watch", [watch_storage, Mended])
def test_a_header_that_torch_keeps_is_no_storage(watch: Any) -> None:
    tensor = torch.ones(3)
    weak = watch(tensor.untyped_storage())
    noted = StorageWeakRef(tensor.untyped_storage())  # as torch does of what a worker sends
    assert weak() is not None
    del tensor
    assert noted.expired()
    assert weak() is None

"""One question, asked before a tensor is looked at: can it be read?"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from whynan.seam.reading import all_hollow, readable


def fake() -> torch.Tensor:
    with FakeTensorMode():
        return torch.ones(3)


def given_back() -> torch.Tensor:
    tensor = torch.ones(3)
    tensor.untyped_storage().resize_(0)
    return tensor


def nested() -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch: a prototype
        return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])


def inside_vmap() -> torch.Tensor:
    seen: list[torch.Tensor] = []

    def keep(x: torch.Tensor) -> torch.Tensor:
        seen.append(x)
        return x

    torch.vmap(keep)(torch.ones(2, 3))
    return seen[0]


class Marked(torch.Tensor):
    """A subclass without a dispatch of its own."""


UNREADABLE: dict[str, Callable[[], torch.Tensor]] = {
    "meta": lambda: torch.ones(3, device="meta"),
    "meta parameter": lambda: nn.Linear(2, 2, device="meta").weight,
    "sparse on meta": lambda: torch.ones(3).to_sparse().to("meta"),
    "fake": fake,
    "waits for its shape": lambda: nn.LazyLinear(2).weight,
    "given back": given_back,
    "nested": nested,
    "inside vmap": inside_vmap,
    "functional": lambda: torch._to_functional_tensor(torch.ones(3)),
}
READABLE: dict[str, Callable[[], torch.Tensor]] = {
    "plain": lambda: torch.ones(3),
    "parameter": lambda: nn.Linear(2, 2).weight,
    "empty": lambda: torch.empty(0),
    "view": lambda: torch.ones(3, 4).t()[1:, 2],
    "expanded": lambda: torch.ones(3).expand(5, 3),
    "complex": lambda: torch.ones(3, dtype=torch.complex64).conj(),
    "zero without memory": lambda: torch._efficientzerotensor(3),
    "sparse": lambda: torch.ones(3).to_sparse(),
    "compressed": lambda: torch.ones(3, 3).to_sparse_csr(),
    "subclass": lambda: torch.ones(3).as_subclass(Marked),
    "half": lambda: torch.ones(3, dtype=torch.float16),
}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_there_is_nothing_to_read(kind: str) -> None:
    assert readable(UNREADABLE[kind]()) is None


@pytest.mark.parametrize("kind", READABLE)
@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_values_are_read_as_they_are(kind: str) -> None:
    tensor = READABLE[kind]()
    values = readable(tensor)
    assert values is not None
    assert not values.requires_grad
    assert torch.equal(values.to_dense(), tensor.detach().to_dense())


def test_a_dry_run_is_one_in_which_nothing_is_behind_any_tensor() -> None:
    meta, real = torch.ones(3, device="meta"), torch.ones(3)
    assert all_hollow([meta, fake()])
    dry: list[list[Any]] = [[], [None], [real], [meta, real], [given_back()]]
    assert not any(map(all_hollow, dry))

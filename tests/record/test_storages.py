"""What is known about a storage while it lives, and after."""

import math
import weakref

import numpy as np
import torch
from torch import nn

import whynan
from whynan.record.storages import MAX_COPY, Entry, Holder


def held(holder: Holder, tensor: torch.Tensor) -> Entry:
    storage = tensor.untyped_storage()
    entry = Entry(storage)
    holder.hold(entry, storage)
    return entry


def test_what_only_the_recorder_held_is_gone_when_it_lets_go() -> None:
    holder = Holder(1 << 20)
    entry = held(holder, torch.ones(4))
    assert not entry.expired()
    assert holder.let_go() == [entry]
    assert entry.expired()
    assert entry.storage() is None


def test_what_a_tensor_still_uses_is_known_until_the_tensor_ends() -> None:
    holder = Holder(1 << 20)
    tensor = torch.ones(4)
    entry = held(holder, tensor[1:])
    assert holder.let_go() == []
    assert not entry.expired()
    assert entry.storage() is not None
    del tensor
    assert entry.expired()


def test_a_storage_that_somebody_keeps_without_a_tensor_is_not_gone() -> None:
    holder = Holder(1 << 20)
    storage = torch.ones(4).untyped_storage()
    entry = Entry(storage)
    holder.hold(entry, storage)
    assert holder.let_go() == []
    assert not entry.expired()
    del storage
    assert entry.expired()


def test_the_oldest_gives_way() -> None:
    holder = Holder(8 * 1024)
    first = held(holder, torch.ones(256))
    others = [held(holder, torch.ones(256)) for _ in range(8)]
    assert first.expired()
    assert first.storage() is None
    assert not others[-1].expired()


def test_a_new_tensor_at_an_old_address_is_not_taken_for_the_old_one() -> None:
    size = 3_000_000  # more than is ever held
    with whynan.trace() as trace:
        seen: set[int] = set()
        for turn in range(64):
            bad = torch.full((size,), -1.0).sqrt()
            seen.add(bad.untyped_storage()._cdata)
            del bad
            good = torch.ones(size) * 2
            seen.add(good.untyped_storage()._cdata)
            assert good.sum().item() == 2 * size
            del good
            if turn > 2 and len(seen) < 2 * turn + 2:
                break
    assert len(seen) < 2 * turn + 2, "no address was used twice: this proves nothing"
    assert not whynan.diagnose(trace).anomalies


def test_one_too_large_to_hold_is_only_watched() -> None:
    holder = Holder(8 * 1024)
    tensor = torch.ones(1024)
    entry = held(holder, tensor)
    assert not entry.expired()
    del tensor
    assert entry.expired()


def test_the_batch_is_the_programs_to_free() -> None:
    net = nn.Linear(3, 4)
    with whynan.trace():
        x = torch.ones(2, 3)
        weak = weakref.ref(x)
        net(x)
        del x
        assert weak() is None


def test_a_storage_that_was_made_smaller_stays_so() -> None:
    with whynan.trace() as trace:
        shard = torch.zeros(64) * 2
        x = torch.ones(64) / shard
        shard.untyped_storage().resize_(0)
        left = (x - math.inf).sum().item()  # looked into at once, back to the division
    assert math.isnan(left)
    assert whynan.diagnose(trace).anomalies
    assert shard.untyped_storage().nbytes() == 0


def test_memory_of_a_numpy_array_is_copied_where_it_explains_something() -> None:
    tensor = torch.from_numpy(np.array([1.0, math.nan]))
    entry = Entry(tensor.untyped_storage())
    entry.watch(tensor.untyped_storage())
    kept = entry.keep()
    assert kept is not None
    assert kept.data_ptr() != tensor.untyped_storage().data_ptr()
    del tensor
    assert entry.is_gone()
    assert not entry.expired()
    assert entry.storage() is kept
    del kept
    assert entry.expired()


def test_a_whole_dataset_in_a_numpy_array_is_not_copied() -> None:
    tensor = torch.from_numpy(np.zeros(MAX_COPY // 8 + 1))
    entry = Entry(tensor.untyped_storage())
    entry.watch(tensor.untyped_storage())
    assert entry.keep() is None
    assert entry.storage() is not None

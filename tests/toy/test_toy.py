"""The toy accelerator behaves as the tests of whynan expect of a device."""

from __future__ import annotations

import threading

import torch

from tests.toy import toy
from tests.toy.alone import alone


@alone
def test_it_is_the_accelerator_and_computes_what_the_cpu_computes() -> None:
    x = torch.tensor([[1.0, -2.0], [0.5, 4.0]])
    assert torch.accelerator.current_accelerator() == torch.device("toy")
    assert torch.equal((x.to("toy").exp().t() @ x.to("toy")).cpu(), x.exp().t() @ x)


@alone
def test_what_cuda_waits_for_is_counted_as_a_wait_and_a_kernel_is_not() -> None:
    x = torch.ones(4, device="toy")
    with toy.counting() as counts:
        y = (x * 2).sum()
    assert (counts.kernels, counts.syncs) == (2, 0)
    with toy.counting() as counts:
        y.item(), x.tolist(), x.nonzero()
    assert (counts.syncs, counts.to_host) == (3, 2)


@alone
def test_a_copy_that_nobody_waits_for_arrives_when_its_event_is_reached() -> None:
    x, there = torch.ones(2, device="toy"), torch.zeros(2, pin_memory=True)
    event = torch.Event("toy")
    with toy.counting() as counts:
        there.copy_(x, non_blocking=True)
        event.record()
        assert not event.query()
        assert there.tolist() == [0.0, 0.0]
        for _ in range(64):
            x + 1
        assert event.query()
        assert there.tolist() == [1.0, 1.0]
    assert (counts.syncs, counts.to_host_later) == (0, 1)


@alone
def test_backward_runs_in_a_thread_of_the_devices_own() -> None:
    threads: list[int] = []
    x = torch.ones(2, device="toy", requires_grad=True)
    y = x * 2
    y.register_hook(lambda g: threads.append(threading.get_ident()))
    y.sum().backward()
    assert threads != [threading.get_ident()]


@alone
def test_it_draws_from_a_generator_of_its_own() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first = torch.rand(3, device="toy")
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(3)
    assert torch.equal(torch.rand(3, device="toy").cpu(), first.cpu())

"""A thread that only waits does not keep whynan from looking around; one that works does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch
from torch import nn

from tests.record.test_tracer import anomalies_of
from whynan.seam.threads import is_alone, others_wait


@contextmanager
def beside(work: Callable[[threading.Event], object]) -> Iterator[None]:
    """A thread that runs until the block is over."""
    over = threading.Event()
    thread = threading.Thread(target=work, args=(over,), daemon=True)
    thread.start()
    time.sleep(0.2)  # it is where it waits
    try:
        yield
    finally:
        over.set()
        thread.join()


def waits(over: threading.Event) -> None:
    while not over.wait(60):
        pass


def collects(over: threading.Event) -> tuple[bool, ...]:
    return tuple(event.wait(60) for event in [over])


def counts(over: threading.Event) -> None:
    while not over.is_set():
        pass


def test_a_heartbeat_is_in_the_middle_of_nothing() -> None:
    with beside(waits):
        assert is_alone()


def test_threads_that_stand_still() -> None:
    with beside(waits), beside(collects):
        assert others_wait()
        with beside(counts):
            assert not others_wait()


def test_a_thread_that_is_waited_for() -> None:
    found = list[bool]()

    def work() -> None:
        time.sleep(0.2)  # by then the main thread waits in join()
        found.append(others_wait())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [True]


def test_a_tuple_that_is_being_made_is_left_alone() -> None:
    with beside(collects):
        assert not is_alone()


def test_a_thread_that_works_is_left_alone() -> None:
    with beside(counts):
        assert not is_alone()


class Task(nn.Module):
    """Its parts run, itself never does."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 2))


def test_a_parameter_has_its_full_name_beside_a_heartbeat() -> None:
    def program() -> None:
        task = Task()
        optimizer = torch.optim.SGD(task.parameters(), lr=0.1)
        (task.net(torch.ones(1, 2)).sum() * 0).sqrt().backward()
        optimizer.step()

    with beside(waits):
        assert anomalies_of(program)[0].evidence.subject == "gradient of net.0.weight"


def test_an_idle_pool_is_no_company_and_a_busy_one_is() -> None:
    over = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        time.sleep(0.2)
        assert is_alone()
        busy = pool.submit(counts, over)
        time.sleep(0.2)
        assert not is_alone()
        over.set()
        busy.result()

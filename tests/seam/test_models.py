"""A model that is called without gradients is heard of as a whole, and its parts go torch's short way."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn

from whynan.seam import models
from whynan.seam.events import Events
from whynan.seam.patches import Patches
from whynan.seam.quiet import Quiet


class Heard:
    """What was told, by the module and its output."""

    def __init__(self) -> None:
        self.begun = 0
        self.returned: list[tuple[Any, Any]] = []

    def model_begins(self, args: Any, kwargs: Any, frame: Any) -> None:
        self.begun += 1

    def model_returned(self, module: Any, output: Any, frame: Any) -> None:
        self.returned.append((module, output))

    @property
    def modules(self) -> list[Any]:
        return [module for module, _ in self.returned]


@pytest.fixture
def heard() -> Iterator[Heard]:
    with listening() as listener:
        yield listener


@contextmanager
def listening() -> Iterator[Heard]:
    def fail(error: BaseException) -> bool:
        raise error

    listener, patches, events = Heard(), Patches(), Events(Quiet(fail))
    events.listen(listener)
    models.install(events, patches)
    try:
        yield listener
    finally:
        patches.restore()


class Part(nn.Module):
    """Notes which function of torch's called it."""

    caller = ""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.caller = sys._getframe(1).f_code.co_name
        return x


class Whole(nn.Module):
    def __init__(self, work: Callable[[], Any] = lambda: None) -> None:
        super().__init__()
        self.part, self.work = Part(), work

    def forward(self, x: torch.Tensor, times: int = 0) -> Any:
        self.work()
        return self(x, times - 1) if times else self.part(x)


X = torch.ones(2)


@pytest.mark.parametrize("block", [torch.no_grad, torch.inference_mode])
def test_parts_go_the_short_way(heard: Heard, block: Callable[[], Any]) -> None:
    whole = Whole()
    with block():
        whole.part(X)
        long_way = whole.part.caller
        whole(X)
    assert (long_way, whole.part.caller) == ("inner", "_call_impl")
    assert heard.modules == [whole.part, whole]
    assert heard.begun == 2


def test_a_module_that_calls_itself_is_heard_of_once(heard: Heard) -> None:
    whole = Whole()
    with torch.no_grad():
        whole(X, 3)
        whole(X)
    assert heard.modules == [whole, whole]


def test_what_comes_after_an_exception_is_heard_of(heard: Heard) -> None:
    def fail() -> None:
        raise LookupError

    broken, whole = Whole(fail), Whole()
    outer = nn.Sequential(broken)
    with torch.no_grad():
        for module in (broken, outer):
            with pytest.raises(LookupError):
                module(X)
        whole(X)
    assert heard.modules == [whole]


def test_what_comes_after_an_interrupt_is_heard_of(heard: Heard) -> None:
    def fail() -> None:
        raise KeyboardInterrupt

    broken, whole = Whole(fail), Whole()
    with torch.no_grad(), pytest.raises(KeyboardInterrupt):
        broken(X)
    with torch.no_grad():
        whole(X)
    assert heard.modules == [whole]
    assert not broken._forward_hooks
    assert not broken._forward_pre_hooks


def test_two_threads_do_not_take_each_others_calls(heard: Heard) -> None:
    """One calls its model while another is in the middle of its own, and leaves its block first."""
    here, there = threading.Event(), threading.Event()

    def meet() -> None:
        here.set()
        assert there.wait(20)

    first, second = Whole(meet), Whole()

    def work() -> None:
        with torch.no_grad():
            first(X)
            first.part(X)

    thread = threading.Thread(target=work)
    thread.start()
    assert here.wait(20)
    with torch.no_grad():
        second(X)
    with torch.no_grad():
        second(X)
        there.set()
        thread.join()
        second(X)
    assert heard.modules == [second, second, first, first.part, second]


def test_a_hook_of_the_programs_own_changes_what_is_heard_of(heard: Heard) -> None:
    whole = Whole()
    whole.register_forward_hook(lambda module, args, output: output * 3)
    with torch.no_grad():
        given = whole(X)
    assert [output is given for _, output in heard.returned] == [True]


def test_a_module_is_left_as_it_was(heard: Heard) -> None:
    whole = Whole()
    before = {name: dict(v) for name, v in vars(whole).items() if isinstance(v, dict)}
    with torch.no_grad():
        whole(X)
    assert {name: dict(v) for name, v in vars(whole).items() if isinstance(v, dict)} == before


@pytest.fixture
def with_gradients() -> Iterator[None]:
    yield
    torch.set_grad_enabled(True)


@pytest.mark.usefixtures("with_gradients")
def test_gradients_that_are_switched_off(heard: Heard) -> None:
    """As a function, a block or a decorator, by the program itself."""
    switched, block, decorated, later = Whole(), Whole(), Whole(), Whole()

    @torch.set_grad_enabled(False)
    def call() -> None:
        decorated(X)

    with torch.set_grad_enabled(False):
        block(X)
    with torch.set_grad_enabled(True):
        later(X)
    call()
    torch.set_grad_enabled(False)
    switched(X)
    with torch.no_grad():
        switched(X)
    switched(X)
    with torch.enable_grad():
        later(X)
    torch.set_grad_enabled(True)
    later(X)
    assert heard.modules == [block, decorated, switched, switched, switched]
    assert later.part.caller == "_call_impl"


@pytest.mark.usefixtures("with_gradients")
def test_gradients_that_were_switched_off_before() -> None:
    torch.set_grad_enabled(False)
    with listening() as heard:
        whole = Whole()
        whole(X)
        torch.set_grad_enabled(True)
        whole(X)
    assert heard.modules == [whole]


def test_an_optimizers_own_switch_is_none(heard: Heard) -> None:
    whole = nn.Linear(2, 1)
    optimizer = torch.optim.Adam(whole.parameters())

    def closure() -> float:
        optimizer.zero_grad()
        whole(X).sum().backward()
        return 0.0

    optimizer.step(closure)
    assert heard.modules == []

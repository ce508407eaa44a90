"""A recording sets aside what was there before, and a program that asks the collector never notices."""

from __future__ import annotations

import gc
import weakref

import torch
from torch import nn

import whynan
from whynan.seam.collector import SetAside
from whynan.seam.patches import Patches


class Circle:
    def __init__(self) -> None:
        self.itself = self


def test_a_program_that_is_recorded_finds_everything_in_its_place() -> None:
    circles = [Circle()]
    gone = weakref.ref(circles[0])
    model = nn.Linear(3, 3)
    before = gc.get_freeze_count()
    with whynan.trace():
        model(torch.ones(3)).sum().backward()
        assert gc.get_freeze_count() == before
        assert any(found is model for found in gc.get_objects())
        assert any(model._modules is found for found in gc.get_referents(model.__dict__))
        circles.clear()
        gc.collect()
        assert gone() is None
    assert gc.get_freeze_count() == before
    assert not hasattr(gc.collect, "__wrapped__")


def test_the_collector_does_not_look_through_what_is_set_aside() -> None:
    gc.unfreeze()
    patches, aside = Patches(), SetAside()
    circle = Circle()
    gone = weakref.ref(circle)
    real_count = gc.get_freeze_count
    collect = gc.collect
    aside.begin(patches)
    assert real_count() > 10_000
    del circle
    collect()
    assert gone() is not None
    patches.restore()
    assert real_count() == 0
    collect()
    assert gone() is None


def test_what_the_program_has_set_aside_stays_so() -> None:
    gc.freeze()
    count = gc.get_freeze_count()
    try:
        patches = Patches()
        SetAside().begin(patches)
        assert gc.get_freeze_count() >= count
        patches.restore()
        assert gc.get_freeze_count() >= count
    finally:
        gc.unfreeze()


def test_a_program_may_set_aside_by_itself_meanwhile() -> None:
    patches = Patches()
    SetAside().begin(patches)
    gc.freeze()
    patches.restore()
    assert gc.get_freeze_count() > 10_000
    gc.unfreeze()

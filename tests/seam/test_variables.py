"""A frame's variables are read, and nothing of them is held afterwards."""

from __future__ import annotations

import sys
import weakref

import torch

from whynan.seam.variables import locals_of
from whynan.watching.carried import Carried


class Large:
    pass


def test_what_a_function_lets_go_is_let_go() -> None:
    held = Large()
    known = weakref.ref(held)
    assert locals_of(sys._getframe())["held"] is held
    del held
    assert known() is None


def test_a_dictionary_that_the_program_holds_stays_as_it_is() -> None:
    one = 1
    mine = locals()
    assert locals_of(sys._getframe(), ["one", "none"]) == {"one": one}
    assert mine["one"] == 1


def test_what_the_program_has_added_stays() -> None:
    locals()["added"] = 1
    locals_of(sys._getframe())
    assert ("added" in locals()) == (sys.version_info < (3, 13))


def _kept_after_a_turn(size: int, *, has_graph: bool) -> bool:
    carried, x = Carried(), torch.ones(size, requires_grad=has_graph)
    for _ in range(1):
        x = x * 1
        known = weakref.ref(x)
        carried.note_call(sys._getframe(), of_model=False)
    del x
    return known() is not None


def test_only_what_is_small_is_carried_on_and_no_graph() -> None:
    assert _kept_after_a_turn(4, has_graph=False)
    assert not _kept_after_a_turn(4, has_graph=True)
    assert not _kept_after_a_turn(1 << 21, has_graph=False)

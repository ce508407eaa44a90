"""Optimizers that were made before a watch began, found by who refers to whom."""

from __future__ import annotations

import gc
from typing import Any

from torch import nn

from whynan.seam.optimizers import Optimizer


def optimizers_of(models: list[nn.Module]) -> list[Optimizer]:
    """Those that hold a parameter of these models: going through all objects could get hold of one
    that another thread is still making."""
    lists = _holders([p for model in models for p in model.parameters()], list)
    groups = [g for g in _holders(lists, dict) if g.get("params") is not None]
    owners = gc.get_referrers(*found) if (found := _holders(groups, list)) else []
    spaces = [o for o in owners if type(o) is dict]
    owners += gc.get_referrers(*spaces) if spaces else []
    return list({id(o): o for o in owners if issubclass(type(o), Optimizer)}.values())


def optimizers_so_far() -> list[Optimizer]:
    # The type is asked, not the object: some of torch's warn when they are looked at.
    return [o for o in gc.get_objects() if issubclass(type(o), Optimizer)]


def _holders(objects: list[Any], kind: type) -> list[Any]:
    return [o for o in gc.get_referrers(*objects) if type(o) is kind] if objects else []

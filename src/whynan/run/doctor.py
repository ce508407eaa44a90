"""Whether the torch that is installed here can be watched, and what whynan does without in it."""

from __future__ import annotations

import platform
from collections.abc import Iterator

from whynan.seam.supported import need_torch
from whynan.version import __version__


def examine(*, names: bool = False) -> Iterator[str]:
    """Line by line; raises what there is to say where torch is missing or cannot be watched.

    `names` adds every name that whynan takes from the inside of torch.
    """
    need_torch()
    import torch

    from whynan.seam.support import losses, table

    yield f"whynan {__version__}, Python {platform.python_version()}, torch {torch.__version__}"
    yield f"this torch can be watched, on {' and '.join(_devices())}"
    lost = losses()
    for sentence in lost:
        yield f"  without a name that this torch lacks: {sentence}"
    rows = table()
    absent = sum(not row.is_present for row in rows)
    there = f"{absent} of them absent here" if absent else "all of them there"
    yield f"{len(rows)} names from the inside of torch, {there}"
    for row in rows if names else ():
        state = "there" if row.is_present else f"absent: {row.instead}"
        yield f"  {row.name}  since {row.since}, {state}"


def _devices() -> list[str]:
    """The CPU, and the accelerator that this build of torch finds."""
    import torch

    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return ["cpu", *([found.type] if found is not None else [])]

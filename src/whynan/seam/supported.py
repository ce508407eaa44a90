"""Which torch whynan can watch: how old it may be, and what of its inside has to be there."""

from __future__ import annotations

import re
import sys
from types import ModuleType
from typing import Any

from whynan.errors import UsageError

NOT_INSTALLED = (
    "PyTorch is not installed here; install the build you train with, or "
    "`pip install 'whynan[torch]'`"
)
OLDEST, NEWEST = (2, 6), (2, 15)


def need_torch() -> None:
    """Import torch; raise what there is to say where that or watching it is not possible."""
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise UsageError(NOT_INSTALLED) from error
    reason = refusal(torch)
    if reason is not None:
        raise UsageError(reason)


def loaded_torch() -> ModuleType | None:
    """The torch of this process, if it has one: not a stand-in, nor a module of that name."""
    torch = sys.modules.get("torch")
    version = getattr(torch, "__version__", None)
    return torch if isinstance(torch, ModuleType) and isinstance(version, str) else None


def is_missing(error: BaseException | None) -> bool:
    """Whether a program ended because there is no torch."""
    return isinstance(error, ModuleNotFoundError) and error.name == "torch"


def is_whole() -> bool:
    """Whether its compiled part is there: only then was anything computed with it."""
    return hasattr(sys.modules.get("torch._C"), "TensorBase")


def refusal(torch: Any) -> str | None:
    """Why this torch cannot be watched, in one sentence; its version is asked before its inside."""
    version = str(torch.__version__)
    why = out_of_reach(version)
    if why is not None:
        return why
    try:
        from whynan.seam.support import missing

        lacking = [f"`{name.path}`" for name in missing()]
    except Exception as error:  # a torch in which not even the table can be filled
        lacking = [f"more of it than there is ({error})"]
    if not lacking:
        return None
    return f"torch {version} cannot be watched: whynan needs {', '.join(lacking)}"


def out_of_reach(version: str) -> str | None:
    """Of a torch that is too old, or newer than any that was tried."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    here = tuple(map(int, numbers.groups())) if numbers is not None else OLDEST
    if OLDEST <= here <= NEWEST:
        return None
    reach = " to ".join(".".join(map(str, release)) for release in (OLDEST, NEWEST))
    what = "a newer" if here < OLDEST else "an older"
    return f"torch {version} cannot be watched: whynan works with {reach}; install {what} one"

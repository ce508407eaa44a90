"""The mode of `torch.set_default_device`, which moves to the device what is made without one.

whynan's own work has it off; the program's statements, when they are repeated, have it on. Rows of private
names for `private`, which imports this table.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from whynan.seam.names import optional

_INSTEAD = "the program is run again"
_LOST = "Under `torch.set_default_device`, a failing step is not repeated in place."
_modes_on: Callable[[], AbstractContextManager[Any]] | None = optional(
    "torch._C._EnableTorchFunction", None, since="2.5", instead=_INSTEAD, lost=_LOST
)
_mode_at: Callable[[int], Any] = optional(
    "torch._C._get_function_stack_at", lambda _ignored: None, since="2.0", instead=_INSTEAD, lost=_LOST
)  # fmt: skip
_Mode: Any = optional(
    "torch.utils._device.DeviceContext", (), since="2.0", instead=_INSTEAD, lost=_LOST
)


def is_all(modes: int) -> bool:
    """Whether there is no function mode, of so many, but this one."""
    return not modes or (modes == 1 and _modes_on is not None and isinstance(_mode_at(0), _Mode))


def in_force() -> AbstractContextManager[Any]:
    """In the middle of whynan's work, as for the program."""
    return nullcontext() if _modes_on is None else _modes_on()

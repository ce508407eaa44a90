"""The program's own profiler: what whynan does is none of its events."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from whynan.seam.names import optional, read
from whynan.seam.patches import Patches

if TYPE_CHECKING:
    from whynan.seam.events import Events

_SHOWN = "The work of whynan shows in a profile that the program takes."
is_profiled: Callable[[], bool] = optional(
    "torch._C._autograd._profiler_enabled", lambda: False, since="1.13", instead="nothing", lost=_SHOWN
)  # fmt: skip
_enable: Callable[[bool], None] = optional(
    "torch._C._autograd._enable_record_function", lambda enable: None, since="1.13", instead="nothing", lost=_SHOWN
)  # fmt: skip
_START = read("torch.autograd.profiler.profile._start_trace", since="1.13", lost=_SHOWN)


def install(events: Events, patches: Patches) -> None:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def start(profiler: Any) -> Any:
            events.tell("profiling_begins")
            return original(profiler)

        return start

    patches.wrap(torch.autograd.profiler.profile, _START, wrap)


def stop() -> bool:
    """Whether there is a profiler, which then sees nothing in this thread until `go_on`."""
    if not is_profiled():
        return False
    _enable(False)
    return True


def go_on() -> None:
    _enable(True)

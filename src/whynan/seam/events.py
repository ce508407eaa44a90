"""What happens in a program, in the words of training: each attribute of torch is wrapped once.

Whoever wants to hear of it (the watch, the recorder, the ranks of a job) has methods of these names and is
given to `listen`. The wrappers are in `training`, `values`, `loading`, `models` and `exchanges`.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal, Protocol

from whynan.seam.patches import Patches
from whynan.seam.quiet import Quiet

if TYPE_CHECKING:
    import torch

    from whynan.seam.loading import Fetch
    from whynan.seam.training import Step

Decision = Literal["go", "cancel"]


class Listener(Protocol):
    """Every event; a listener has the methods that it wants to hear."""

    # training
    def optimizer_made(self, optimizer: torch.optim.Optimizer) -> None: ...
    def step_begins(self, step: Step) -> Decision | None: ...
    def step_ends(self, step: Step) -> None: ...
    def step_left(self, step: Step) -> None: ...
    def state_loaded(self, optimizer: torch.optim.Optimizer) -> None: ...
    def gradients_dropped(self, optimizer: torch.optim.Optimizer) -> None: ...
    def gradients_clipped(self, norm: torch.Tensor) -> None: ...
    def backward_begins(self, roots: Any, frame: FrameType) -> None: ...
    def backward_ends(self, roots: Any, given: Any) -> None: ...
    def loss_scaled(self) -> None: ...
    def scaler_stepped(self, scaler: Any, step: Step, taken: bool) -> None: ...

    # values
    def value_read(self, tensor: torch.Tensor, value: Any, how: str, frame: FrameType) -> None: ...
    def text_shown(self, text: str, frame: FrameType) -> None: ...
    def saved(self, obj: Any, frame: FrameType) -> None: ...
    def array_saved(self, bad: bool, frame: FrameType) -> None: ...

    def file_loaded(self, file: str, obj: Any) -> None: ...

    # data
    def fetch_begins(self, fetch: Fetch) -> Any: ...
    def fetch_ends(self, fetch: Fetch) -> None: ...

    # models
    def model_called(self, module: Any) -> None: ...
    def model_begins(self, args: Any, kwargs: Any, frame: FrameType) -> None: ...
    def model_returned(self, module: Any, output: Any, frame: FrameType) -> None: ...
    def cast_begins(self, module: Any) -> None: ...
    def cast_ends(self, module: Any) -> None: ...
    def compiled(self) -> None: ...
    def profiling_begins(self) -> None: ...
    def buffers_made(self, module: Any) -> None: ...


NAMES = tuple(name for name in vars(Listener) if not name.startswith("_"))
_alive: weakref.WeakSet[Events] = weakref.WeakSet()


def _after_fork() -> None:
    for events in list(_alive):
        events.quiet.active = False  # a worker is not the program


os.register_at_fork(after_in_child=_after_fork)  # once: it can never be taken back


class Events:
    """Tells listeners what happens, in the order in which they came."""

    def __init__(self, quiet: Quiet) -> None:
        self.quiet = quiet
        self._listeners: dict[str, tuple[Callable[..., Any], ...]] = dict.fromkeys(NAMES, ())
        _alive.add(self)

    def listen(self, listener: object) -> None:
        for name in NAMES:
            method = getattr(listener, name, None)
            if method is not None:
                self._listeners[name] = (*self._listeners[name], method)

    def tell(self, event: str, *args: Any) -> Any:
        """The last answer that somebody gives: later listeners may overrule earlier ones."""
        answer = None
        for hear in self._listeners[event]:
            given = self.quiet(hear, *args)
            answer = answer if given is None else given
        return answer

    def ask(self, event: str, *args: Any) -> Iterator[Any]:
        """Each answer, before the next listener is asked: it may overrule."""
        for hear in self._listeners[event]:
            yield self.quiet(hear, *args)

    def install(self, patches: Patches) -> None:
        """Wrap what these events come from."""
        from whynan.seam import loading, models, profiling, training, values

        self._optimizers = training.install(self, patches)
        for part in (values, loading, models, profiling):
            part.install(self, patches)

    def follow(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer that was made before."""
        self._optimizers.follow(optimizer)

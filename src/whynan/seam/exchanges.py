"""What a program exchanges with other processes, as events of its own: only a job of ranks listens."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Protocol

from torch import distributed as dist
from torch.distributed import distributed_c10d
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

from whynan.seam.patches import Patches
from whynan.seam.private import SET_DEFAULT_GROUP
from whynan.seam.sites import beyond_own, beyond_torch
from whynan.seam.versions import SENT

WAITED_FOR = ("recv", "barrier", "scatter", "monitored_barrier", "new_group")


class Job(Protocol):
    """Who wants to know."""

    def job_joined(self) -> None: ...
    def replica_made(self, replica: DistributedDataParallel) -> None: ...
    def mesh_made(self, mesh: DeviceMesh) -> None: ...
    def waits(self) -> None: ...
    def exchange_begins(self, name: str, sent: Any, group: Any, frame: FrameType) -> bool: ...


def when_joined(tell: Callable[[], None], patches: Patches) -> None:
    """Each time that the program has made its default group."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def init(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            tell()
            return result

        return init

    if hasattr(distributed_c10d, SET_DEFAULT_GROUP):  # every way to a group goes through it
        patches.wrap(distributed_c10d, SET_DEFAULT_GROUP, wrap)
    else:
        patches.wrap(distributed_c10d, "init_process_group", wrap)
        patches.wrap(dist, "init_process_group", wrap)


def install(job: Job, patches: Patches) -> None:
    exchanges = _Exchanges(job)
    when_joined(job.job_joined, patches)
    for module in (distributed_c10d, dist):
        for name in SENT:
            if hasattr(module, name):
                patches.wrap(module, name, exchanges.wrap)
    # `isend` cannot be wrapped: torch compares what it is given with the function itself.
    patches.wrap(dist.ProcessGroup, "send", exchanges.wrap_send)
    for name in WAITED_FOR:
        patches.wrap(dist, name, exchanges.wrap_waiting)
        patches.wrap(distributed_c10d, name, exchanges.wrap_waiting)
    patches.after(DistributedDataParallel, "__init__", job.replica_made)
    patches.after(DeviceMesh, "__init__", job.mesh_made)


def functions_of(module: Any) -> list[str]:
    """By name: those that are its own."""
    found = vars(module).items() if module is not None else ()
    return [n for n, f in found if inspect.isfunction(f) and f.__module__ == module.__name__]


class _Exchanges:
    def __init__(self, job: Job) -> None:
        self._job = job
        self._depth = 0  # some are made of others

    def wrap_send(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """What `isend`, `batch_isend_irecv` and torch's pipelines come to."""

        def send(group: Any, sent: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._depth:
                frame = beyond_torch(sys._getframe(1))
                self._job.exchange_begins("send", sent, group, frame)
            return original(group, sent, *args, **kwargs)

        return send

    def wrap_waiting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """What brings nothing of this rank's to others, but waits for them."""

        def wait(*args: Any, **kwargs: Any) -> Any:
            if not self._depth:
                self._job.waits()
            return original(*args, **kwargs)

        return wait

    def wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        name = original.__name__
        signature = inspect.signature(original)

        def exchange(*args: Any, **kwargs: Any) -> Any:
            if self._depth:
                return original(*args, **kwargs)
            given = signature.bind_partial(*args, **kwargs).arguments
            sent, group = given.get(SENT.get(name, "")), given.get("group")
            if not self._job.exchange_begins(name, sent, group, beyond_own(sys._getframe(1))):
                return None
            self._depth += 1
            try:
                return original(*args, **kwargs)
            finally:
                self._depth -= 1

        return exchange

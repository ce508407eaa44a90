"""This process's place in the job: rank, store, and the vote that keeps all ranks in step."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta
from types import FrameType
from typing import Any

import torch
from torch import distributed as dist
from torch.distributed import distributed_c10d
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

from whynan.ranks.collectives import Collectives
from whynan.record.recorder import Recorder
from whynan.seam.private import default_store, modes_off
from whynan.seam.reading import local_of

TIMEOUT = "WHYNAN_RANK_TIMEOUT"
POLL_S = 0.02
# Whether the loop does the same step again on this rank: surely, perhaps, or it cannot.
CERTAIN, DOUBTFUL, BLOCKED = 0, 1, 2


def patience_s() -> float:
    """How long a rank waits for the others before it goes on without them."""
    try:
        return max(1.0, float(os.environ.get(TIMEOUT, "60")))
    except ValueError:
        return 60.0


class Job:
    """Known once the program has called `init_process_group`; before that there is one process."""

    def __init__(self, recorder: Recorder, say: Callable[[str], None]) -> None:
        self.rank = int(os.environ.get("RANK", "0"))
        self.world = int(os.environ.get("WORLD_SIZE", "1"))
        self.store: Any = None
        self.exchanges = Collectives(recorder)
        self._say = say
        self._group: Any = None
        self.votes = True  # False: the others did not answer
        self.replicas: list[DistributedDataParallel] = []
        self.has_meshes = False
        self._has_mesh = False  # of all ranks
        self._covering: tuple[object, list[DistributedDataParallel]] = (None, [])

    # ---- what the program does ----------------------------------------------------------

    def job_joined(self) -> None:
        if self.store is None and dist.is_initialized() and dist.get_world_size() > 1:
            self.rank, self.world = dist.get_rank(), dist.get_world_size()
            # A second life of the job under the same launcher keeps the launcher's store.
            life = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
            store = default_store()
            if store is not None:
                self.store = distributed_c10d.PrefixStore(f"whynan/{life}", store)

    def replica_made(self, replica: DistributedDataParallel) -> None:
        self.replicas.append(replica)

    def mesh_made(self, mesh: DeviceMesh) -> None:
        self.has_meshes = True
        self._has_mesh |= dist.is_initialized() and mesh.size() == dist.get_world_size()

    def waits(self) -> None:
        self.exchanges.waits()

    def exchange_begins(self, name: str, sent: Any, group: Any, frame: FrameType) -> bool:
        return self.exchanges.begins(name, sent, group, frame)

    # ---- the vote -------------------------------------------------------------------------

    def is_reduced(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether every gradient is the same on all ranks: then nobody needs to be asked."""
        if not self.replicas:
            return False
        key = (id(optimizer), len(optimizer.param_groups), len(self.replicas))
        if self._covering[0] != key:
            self._covering = key, self._cover(optimizer)
        return bool(self._covering[1]) and all(
            r.require_backward_grad_sync for r in self._covering[1]
        )

    def _cover(self, optimizer: torch.optim.Optimizer) -> list[DistributedDataParallel]:
        """The replicas that own all parameters of this optimizer; none if some are left over, or
        if they are the same on some ranks only."""
        whole = [r for r in self.replicas if r.process_group.size() == self.world]
        owners = {id(p): r for r in whole for p in r.module.parameters()}
        found = [owners.get(id(p)) for g in optimizer.param_groups for p in g["params"]]
        return [] if None in found else list({id(r): r for r in found if r is not None}.values())

    def moves_together(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether the ranks depend on each other at all; independent ones are left alone."""
        sharded = any(local_of(p) is not p for g in optimizer.param_groups for p in g["params"][:1])
        in_parts = self._has_mesh and (self.exchanges.in_parts or bool(self.replicas))
        return self.exchanges.everyone or sharded or in_parts

    def vote(self, harmed: bool, doubt: int, step: int) -> tuple[bool, int]:
        """(any rank harmed, the greatest doubt of one): four integers in one all-reduce."""
        if not self.votes or self.store is None or not dist.is_initialized():
            return harmed, BLOCKED
        self.exchanges.own = True
        began = time.monotonic()
        try:
            with modes_off(), torch.no_grad():
                if self._group is None:
                    limit = timedelta(seconds=patience_s())
                    self._group = dist.new_group(backend="gloo", timeout=limit)
                numbers = [harmed, doubt, step, -step]
                votes = torch.tensor(numbers, dtype=torch.int64, device="cpu")
                dist.all_reduce(votes, op=dist.ReduceOp.MAX, group=self._group)
        except RuntimeError as error:
            self.votes = False
            waited = time.monotonic() - began
            self._say(
                f"rank {self.rank} had no answer from all other ranks at step {step} "
                f"({waited:.0f} s: {str(error).splitlines()[0][:120]}); "
                "from here on each rank decides for itself"
            )
            return harmed, BLOCKED
        finally:
            self.exchanges.own = False
        any_harmed, doubt, last, first = votes.tolist()
        if last != -first:  # every rank has the same four numbers: all stop asking now
            self.votes = False
            self._say(
                f"the ranks are at different steps ({-first} to {last}); "
                "from here on each rank decides for itself"
            )
            return harmed, BLOCKED
        return bool(any_harmed), int(doubt)

    # ---- the store --------------------------------------------------------------------------

    def put(self, key: str, text: str) -> None:
        try:
            self.store.set(key, text)
        except RuntimeError:
            pass  # whoever kept the store is gone

    def take(self, key: str, limit_s: float) -> str | None:
        """What a rank put there, or None when it did not in time."""
        end = time.monotonic() + limit_s
        try:
            while not self.store.check([key]):  # `wait` prints warnings of its own
                if time.monotonic() > end:
                    return None
                time.sleep(POLL_S)
            return bytes(self.store.get(key)).decode()
        except RuntimeError:
            return None

    def has(self, key: str) -> bool:
        try:
            return bool(self.store.check([key]))
        except RuntimeError:
            return False

    def is_first(self, key: str) -> bool:
        """Whether this process is the first to ask."""
        try:
            return bool(self.store.add(key, 1) == 1)
        except RuntimeError:
            return True

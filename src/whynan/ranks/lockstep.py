"""All ranks take the same decision in the same step; the job speaks with one voice."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import NoReturn

import torch

from whynan.model import Evidence
from whynan.ranks.job import Job, patience_s
from whynan.ranks.statement import Statement, merge, with_sent
from whynan.record.patches import Patches
from whynan.record.sites import capture
from whynan.record.stats import has_nonfinite, local_of
from whynan.recording import Recording
from whynan.watching.escalate import Watch
from whynan.watching.guard import Decision, Optimizer, Seen

ALONE_S = 5.0  # a rank that raised does not wait long: the others may be waiting for it
CRASHED_S = 0.5  # there is nothing to report but that
GOODBYE_S = 2.0


class Lockstep:
    """Holds back what a rank finds until all ranks stand before the same update."""

    def __init__(
        self,
        watch: Watch,
        *,
        leave: Callable[[], NoReturn],
        unseen: Callable[[Seen, str], Evidence],
        keep: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self.watch = watch
        self.job = Job(watch.session.checks, say)
        self.how = "live"
        self._leave, self._unseen, self._keep, self._say = leave, unseen, keep, say
        self._seen: Seen | None = None
        self._evidence: list[Evidence] = []
        self._loss_was_bad = False
        self._fresh = False  # harm since the last decision
        self._replays = False
        self._agreed = False  # all ranks leave in this step
        self._speaks = False
        self._heard: list[int] = []  # the ranks whose word is in the report
        self.harmed = False  # this rank or another one, known at the end
        self._patches = Patches()

    def start(self) -> None:
        """Before the watch starts."""
        watch = self.watch
        watch.found, watch.unexplained, watch.together = self._found, self._noticed, self._noticed
        watch.guard.agree = self._agree
        self.job.install(self._patches)

    # ---- what this rank sees ----------------------------------------------------------------

    def _found(self, evidence: Evidence, how: str) -> None:
        self._evidence.append(evidence)
        self.how = how
        self._loss_was_bad |= evidence.sink == "loss"
        self._fresh = True

    def _noticed(self, seen: Seen) -> None:
        if not seen.certain and seen.sink != "exception":
            return  # to confirm a doubt would take a second run of the whole job
        self._seen = self._seen or seen
        self._loss_was_bad |= any(v - v != 0 for v in self.watch.guard.local.values)
        self._fresh = True

    # ---- the decision ---------------------------------------------------------------------

    def _agree(self, optimizer: Optimizer, decision: Decision) -> Decision:
        watch, job = self.watch, self.job
        if job.store is None or watch.policy == "warn":
            return decision
        if watch.is_live and watch.policy == "stop":
            watch.session.optimizers.look(optimizer, capture(sys._getframe(1)))
        own, self._fresh = self._fresh or decision == "cancel", False
        blocked = self._replays or not watch.could_rewind()
        drops = watch.is_live and watch.policy == "skip"  # each rank has decided already
        if job.is_reduced(optimizer) and not self._replays and not drops:
            if not (own and _is_bad(optimizer)):
                return decision  # an infinite loss with finite gradients is told at the end
        elif not job.moves_together(optimizer):
            if not own:
                return decision
            return self._conclude(decision)
        harmed, blocked = job.vote(own or self._replays, blocked, watch.guard.step)
        if not harmed:
            return decision
        if not blocked and watch.policy == "stop":
            self._replays = True
            watch.rewind()
            return "cancel"
        self._agreed = True
        return self._conclude(decision)

    def _conclude(self, decision: Decision) -> Decision:
        if self.watch.policy == "skip":
            if decision != "cancel":
                self.watch.drop()
            return "cancel"
        if self._statement(tuple(self._evidence), None).strength < 3:
            self._keep()
        self._leave()

    def _statement(self, evidence: tuple[Evidence, ...], error: BaseException | None) -> Statement:
        name = None if error is None else f"{type(error).__name__}: {error}".splitlines()[0][:160]
        return Statement(
            rank=self.job.rank,
            step=self.watch.guard.step,
            evidence=with_sent(evidence, self.job.exchanges.sent),
            loss_was_bad=self._loss_was_bad,
            exchange=self._exchange(),
            error=name,
        )

    # ---- the report -----------------------------------------------------------------------

    def conclude(self, recording: Recording, error: BaseException | None) -> tuple[Recording, bool]:
        """The job's recording, and whether this process is the one to tell it."""
        self._patches.restore()
        evidence = recording.evidence
        if not evidence and self._seen is not None:
            evidence = (self._unseen(self._seen, _why(self.watch, self._replays)),)
            self.how = "no"
        job = self.job
        evidence = with_sent(evidence, job.exchanges.sent)
        recording = replace(recording, evidence=evidence)
        if job.store is None:
            ranked = tuple(replace(e, rank=job.rank) for e in evidence)
            self.harmed = bool(ranked)
            return replace(recording, evidence=ranked), bool(ranked) or job.rank == 0
        mine = self._statement(recording.portable().evidence, error)
        job.put(f"statement/{job.rank}", mine.to_json())
        if evidence:
            job.put("harm", "yes")
        self.harmed = bool(evidence) or self._agreed or job.has("harm")
        if (self.harmed or error is not None) and _in_main_thread():
            # The launcher ends all ranks when the first one leaves; the report comes first.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if self.harmed or error is not None or job.rank == 0:
            self._speaks = job.is_first("reporter")
        if self.harmed and not self._speaks:
            job.take("told", patience_s() + ALONE_S)
            job.put(f"heard/{job.rank}", "yes")
        if not self._speaks:
            return recording, False
        statements, silent = self._gather(mine, self._patience_s(error))
        self._heard = [s.rank for s in statements if s.rank != job.rank]
        merged = merge(statements, silent)
        self.harmed = bool(merged)
        if silent and not merged and error is None:
            names = ", ".join(map(str, silent))
            self._say(f"rank {names} said nothing within {patience_s():.0f} s of this one's end")
        return replace(recording, evidence=merged), True

    def _patience_s(self, error: BaseException | None) -> float:
        if error is not None:
            return ALONE_S if self.harmed else CRASHED_S
        return patience_s() if self.job.votes else ALONE_S

    def _gather(self, mine: Statement, limit_s: float) -> tuple[list[Statement], list[int]]:
        end = time.monotonic() + limit_s
        statements, silent = [mine], []
        for rank in range(self.job.world):
            if rank == mine.rank:
                continue
            text = self.job.take(f"statement/{rank}", end - time.monotonic())
            if text is None:
                silent.append(rank)
            else:
                statements.append(Statement.from_json(text))
        return statements, silent

    def release(self) -> None:
        """The report is written: the others may leave."""
        if not self._speaks or self.job.store is None:
            return
        self.job.put("told", "yes")
        if self.harmed and self.job.rank == 0:  # it keeps the store that the others still ask
            end = time.monotonic() + GOODBYE_S
            for rank in self._heard:
                self.job.take(f"heard/{rank}", end - time.monotonic())

    def _exchange(self) -> str | None:
        job = self.job
        if job.replicas:
            return "the all-reduce of DistributedDataParallel"
        for optimizer in self.watch.guard.optimizers:
            if any(local_of(p) is not p for g in optimizer.param_groups for p in g["params"]):
                return "the reduce-scatter of fully_shard"
        return job.exchanges.last


def _is_bad(optimizer: Optimizer) -> bool:
    gradients = (p.grad for group in optimizer.param_groups for p in group["params"])
    return any(
        has_nonfinite(local_of(g.detach()))
        for g in gradients
        if g is not None and g.layout is torch.strided
    )


def _why(watch: Watch, replayed: bool) -> str:
    if not watch.traces:
        return "--mode guard only looks; run again without it to have the step recorded"
    if watch.policy != "stop":
        return "among several ranks a step is repeated only with --on-anomaly stop"
    what = "the step was repeated on all ranks and did not show it"
    if not replayed:
        what = "the step could not be repeated on all ranks"
    return f"{what}; launch the job again with --mode trace to have every operation recorded"


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()

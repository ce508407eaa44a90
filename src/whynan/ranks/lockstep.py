"""All ranks take the same decision in the same step; the job speaks with one voice."""

from __future__ import annotations

import signal
import threading
import time
from dataclasses import replace
from typing import NoReturn, Protocol

import torch

from whynan.harm.ledger import Sign
from whynan.model import Evidence
from whynan.ranks.apart import apart
from whynan.ranks.job import BLOCKED, CERTAIN, DOUBTFUL, Job, patience_s
from whynan.ranks.statement import Statement, guilty_of, merge, with_sent
from whynan.recording import Recording
from whynan.seam import exchanges
from whynan.seam.events import Decision
from whynan.seam.optimizers import Optimizer
from whynan.seam.patches import Patches
from whynan.seam.reading import local_of, readable
from whynan.seam.stats import has_nonfinite
from whynan.seam.training import Step
from whynan.watching.body import Body
from whynan.watching.guarding import Guarding
from whynan.watching.plan import Plan
from whynan.watching.signs import unseen
from whynan.watching.watch import Watch

ALONE_S = 5.0  # a rank that raised does not wait long: the others may be waiting for it
CRASHED_S = 0.5  # there is nothing to report but that
GOODBYE_S = 2.0
HARM = Sign(sink="gradient", subject="gradients")  # somebody's


class Driver(Protocol):
    """The run that this process is."""

    def leave(self) -> NoReturn: ...
    def keep_step(self) -> None: ...
    def say(self, text: str) -> None: ...
    def stepped(self, step: int) -> None: ...
    def failed(self, error: BaseException) -> None: ...


class Lockstep:
    """Holds back what a rank finds until all ranks stand before the same update."""

    def __init__(self, plan: Plan, driver: Driver, speaker: int = 0) -> None:
        self.watch = Watch(replace(plan, together=True), self)
        self.job = Job(self.watch.recorder, driver.say)
        self.how = "live"
        self._driver = driver
        self._speaker = speaker  # the rank that tells of a job that ends healthy
        self._seen: Sign | None = None
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
        """After the watch has started: it looks first at every step."""
        self.watch.events.listen(Deciding(self))
        exchanges.install(self.job, self._patches)

    # ---- what this rank sees ----------------------------------------------------------------

    def found(self, evidence: Evidence, how: str) -> None:
        self._evidence.append(evidence)
        self.how = how
        self._loss_was_bad |= evidence.sink == "loss"
        self._fresh = True

    def unexplained(self, sign: Sign) -> None:
        self._seen = self._seen or sign
        self._loss_was_bad |= any(v - v != 0 for v in self.watch.guard.local.values)
        self._fresh = True

    def stepped(self, step: int) -> None:
        self._driver.stepped(step)

    def failed(self, error: BaseException) -> None:
        self._driver.failed(error)

    # ---- the decision ---------------------------------------------------------------------

    def agree(self, step: Step) -> Decision:
        """What all ranks do, after each has looked: `step.cancelled` is what this one would do."""
        watch, job, optimizer = self.watch, self.job, step.optimizer
        decision: Decision = "cancel" if step.cancelled else "go"
        if job.store is None or watch.plan.policy == "warn" or job.exchanges.apart:
            return decision
        own, self._fresh = self._fresh or step.cancelled, False
        guarding = isinstance(watch.phase, Guarding)
        # While it is recorded, each rank has decided already.
        drops = not guarding and watch.plan.policy == "skip"
        if job.is_reduced(optimizer) and not self._replays and not drops:
            if not (own and _is_bad(optimizer)):
                return decision  # an infinite loss with finite gradients is told at the end
        elif not job.moves_together(optimizer):
            if not own:
                return decision
            if watch.plan.policy == "stop":
                self._repeat_apart(step)
            return self._conclude(decision)
        harmed, doubt = job.vote(own or self._replays, self._doubt(), watch.progress.step)
        if not harmed:
            return decision
        stops = watch.plan.policy == "stop" and not self._replays
        if stops and doubt != CERTAIN:
            self._repeat_apart(step)
            if doubt != BLOCKED and job.vote(bool(self._evidence), doubt, watch.progress.step)[0]:
                doubt = BLOCKED  # somebody has seen it
        if stops and doubt != BLOCKED and isinstance(watch.phase, Guarding):
            self._replays = True
            watch.replay(self._seen)
            return "cancel"
        self._agreed = True
        return self._conclude(decision)

    def _doubt(self) -> int:
        watch = self.watch
        if self._replays or not isinstance(watch.phase, Guarding):
            return BLOCKED
        if not watch.can_rewind(self._seen or HARM):
            return BLOCKED
        alone = len(watch.progress.stepping) <= 1  # else the loop goes on to another's update
        return CERTAIN if alone and watch.rewind.is_certain() else DOUBTFUL

    def _repeat_apart(self, step: Step) -> None:
        """Where the job cannot do the step again, this rank does its part of it, if that needs nobody."""
        watch, job = self.watch, self.job
        if not isinstance(watch.phase, Guarding) or self._evidence or job.has_meshes:
            return
        try:
            with apart(job.exchanges, job.replicas):
                evidence = Body(watch, apart=True).of_step(step)
        except Exception as error:
            watch.recorder_failed(error)
            return
        if evidence is not None:
            watch.told.found(evidence, "body")

    def _conclude(self, decision: Decision) -> Decision:
        if self.watch.plan.policy == "skip":
            if decision != "cancel":
                self.watch.drop()
            return "cancel"
        if self._statement(tuple(self._evidence), None).strength < 3:
            self._driver.keep_step()
        self._driver.leave()

    def _statement(self, evidence: tuple[Evidence, ...], error: BaseException | None) -> Statement:
        name = None if error is None else f"{type(error).__name__}: {error}".splitlines()[0][:160]
        return Statement(
            rank=self.job.rank,
            step=self.watch.progress.step,
            evidence=with_sent(evidence, self.job.exchanges.sent),
            loss_was_bad=self._loss_was_bad,
            exchange=self._exchange(),
            error=name,
            how=self._how(evidence),
        )

    def _how(self, evidence: tuple[Evidence, ...]) -> str:
        if evidence and evidence[0].origin_kind == "unseen":
            return "no"
        return self.how if self._evidence else "rewind" if self._replays else "live"

    # ---- the report -----------------------------------------------------------------------

    def conclude(self, recording: Recording, error: BaseException | None) -> tuple[Recording, bool]:
        """The job's recording, and whether this process is the one to tell it."""
        self._patches.restore()
        evidence = recording.evidence
        if not evidence and self._seen is not None:
            plain = unseen(self._seen, _why(self.watch, self._replays))
            evidence = (self.watch.climb(plain) or plain,)
        job = self.job
        evidence = with_sent(evidence, job.exchanges.sent)
        self.how = self._how(evidence)
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
        if self.harmed or error is not None or job.rank == self._speaker:
            self._speaks = job.is_first("reporter")
        if self.harmed and not self._speaks:
            job.take("told", patience_s() + ALONE_S)
            job.put(f"heard/{job.rank}", "yes")
        if not self._speaks:
            return recording, False
        statements, silent = self._gather(mine, self._patience_s(error))
        self._heard = [s.rank for s in statements if s.rank != job.rank]
        merged, guilty = merge(statements, silent), guilty_of(statements)
        self.harmed, self.how = bool(merged), guilty.how if guilty is not None else self.how
        if guilty is not None and guilty.rank != job.rank:
            past = guilty.evidence[0].around.history
            recording = replace(recording, history=past or recording.history)
        if silent and not merged and error is None:
            names = ", ".join(map(str, silent))
            self._driver.say(
                f"rank {names} said nothing within {patience_s():.0f} s of this one's end"
            )
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
        for optimizer in self.watch.progress.optimizers:
            if any(local_of(p) is not p for g in optimizer.param_groups for p in g["params"]):
                return "the reduce-scatter of fully_shard"
        return job.exchanges.last


class Deciding:
    """Hears of each step after the watch has."""

    def __init__(self, lockstep: Lockstep) -> None:
        self._lockstep = lockstep

    def step_begins(self, step: Step) -> Decision:
        return self._lockstep.agree(step)


def _is_bad(optimizer: Optimizer) -> bool:
    gradients = (p.grad for group in optimizer.param_groups for p in group["params"])
    values = (readable(g) for g in gradients if g is not None and g.layout is torch.strided)
    return any(has_nonfinite(v) for v in values if v is not None)


def _why(watch: Watch, replayed: bool) -> str:
    if watch.plan.compared is not None:
        return "no compiled function of this rank is finite in eager mode and not compiled"
    if not watch.plan.traces:
        return "--mode guard only looks; run again without it to have the step recorded"
    if watch.plan.policy != "stop":
        return "among several ranks a step is repeated only with --on-anomaly stop"
    what = "the step was repeated on all ranks and did not show it"
    if not replayed:
        what = "the step could not be repeated on all ranks"
    if watch.recorder.has_compiled:
        at = f"whynan run --climb {watch.progress.step}"
        return f"{what}; recorded, compiled functions run in eager mode. Launch the job again with `{at}` to compare the two"
    return f"{what}; launch the job again with --mode trace to have every operation recorded"


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()

"""whynan's command line; a collective that whynan's own work causes is told on standard error.

A collective on one rank alone hangs or kills the job. Each process group counts its collectives,
whoever calls them, in Python or not: the count must be the same before and after.
"""

import functools
import sys
import traceback

from torch.distributed import distributed_c10d

from whynan.cli import main
from whynan.ranks.job import Job
from whynan.ranks.lockstep import Lockstep
from whynan.run.findings import Findings
from whynan.run.run import Run
from whynan.seam.quiet import Quiet

OWN = [(Quiet, "__call__"), (Run, "_end"), (Findings, "keep_step"), (Lockstep, "conclude")]
votes = 0


def count():
    groups = list(distributed_c10d._world.pg_map)
    return sum(g._get_sequence_number_for_group() for g in groups) - votes


def counting(work):
    @functools.wraps(work)
    def call(*args, **kwargs):
        before = count()
        try:
            return work(*args, **kwargs)
        finally:
            if count() != before:
                print("a collective of whynan's own:", file=sys.stderr)
                traceback.print_stack(file=sys.stderr)

    return call


def voting(vote):
    @functools.wraps(vote)
    def call(*args):
        global votes
        before = count()
        try:
            return vote(*args)
        finally:
            votes += count() - before

    return call


Job.vote = voting(Job.vote)
for owner, name in OWN:
    setattr(owner, name, counting(getattr(owner, name)))
main()

"""What a healthy run says of its own cost: counted at the one place that all of whynan's work goes through."""

from __future__ import annotations

import time

from whynan.seam.quiet import Quiet


def test_work_counts_once_and_only_while_nothing_is_recorded() -> None:
    quiet = Quiet(lambda error: True)

    def work() -> None:
        quiet(time.sleep, 0.002)  # within other work: it is counted there
        time.sleep(0.002)

    quiet.clock.records(True)
    quiet(work)
    assert quiet.clock.own_ns == 0
    quiet.clock.records(False)
    before = time.perf_counter_ns()
    quiet(work)
    took = time.perf_counter_ns() - before
    assert 4_000_000 <= quiet.clock.own_ns <= took
    assert quiet.clock.share() is None  # half of it was recorded
    quiet.clock.began_ns -= 10**9
    share = quiet.clock.share()
    assert share is not None
    assert 0 < share <= took / 10**9

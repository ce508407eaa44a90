"""Several processes of one job: the same decision everywhere, one report, the guilty rank named."""

from __future__ import annotations

import os
from collections.abc import Mapping


def launched() -> bool:
    """Whether a launcher (torchrun, or a job script) started this process as one of several."""
    return is_of_a_job(os.environ)


def is_of_a_job(env: Mapping[str, str]) -> bool:
    """Whether a process of this environment is one of several; Lightning's launcher gives no RANK."""
    try:
        is_rank = "RANK" in env or "LOCAL_RANK" in env
        return is_rank and int(env.get("WORLD_SIZE", "1")) > 1
    except ValueError:
        return False

"""Several processes of one job: the same decision everywhere, one report, the guilty rank named."""

from __future__ import annotations

import os


def launched() -> bool:
    """Whether a launcher (torchrun, or a job script) started this process as one of several."""
    try:
        return "RANK" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1
    except ValueError:
        return False

"""Does a job of two ranks ever hang, or name the wrong rank? Only rank 1's batch is bad.

python benchmarks/ranks_soak.py [REPEATS]
"""

from __future__ import annotations

import collections
import json
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = Path(__file__).parent.parent / "tests" / "programs" / "train_ranks.py"
BAD_ROW = 61  # of rank 1, in step 7: not recorded as it happens
LIMIT_S = 180


def outcome(kind: str, fault: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [
            sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
            "-m", "whynan", "run", "--json", str(report), str(PROGRAM), kind, str(BAD_ROW), fault,
        ]  # fmt: skip
        try:
            ended = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            return "hangs"
        if ended.stderr.count("exitcode  : 3") != 2:
            return "not exit code 3 on both ranks"
        anomaly = json.loads(report.read_text())["anomalies"][0]
        line = PROGRAM.read_text().splitlines()[anomaly["location"]["line"] - 1]
        right = anomaly["rank"] == 1 and line.endswith(f"LINE: {fault}") and anomaly["step"] == 7
        return "right" if right else f"rank {anomaly['rank']}, {line.strip()}"


def main(repeats: int) -> None:
    for kind in ("ddp", "fsdp"):
        seen: collections.Counter[str] = collections.Counter()
        for i in range(repeats):
            seen[outcome(kind, "backward" if i % 2 else "forward")] += 1
            print(f"{kind} {i + 1:>3} of {repeats}: {dict(seen)}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50)

"""Damaged and hostile recordings by the thousand: does `whynan report` ever crash, hang or swell?

    python benchmarks/fuzz_recordings.py --minutes 3

Recordings of real runs, with the operands that a capsule keeps, are damaged as bytes, and as JSON: a value
somewhere becomes one that no program writes. Each is drawn as text, page and JSON, and its tensors are
unpacked. What raises anything but whynan's own refusal stays on disk.
"""

from __future__ import annotations

import argparse
import copy
import io
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

from whynan.errors import WhynanError
from whynan.recording import load
from whynan.report import html, json_report
from whynan.run.reopen import reopen, show
from whynan.seam.packing import unpack

ROOT = Path(__file__).resolve().parents[1]
CASES = (
    "class_weights_missing_class",
    "grad_triplet_duplicate",
    "csv_missing_value",
    "opt_half_adam",
)
MEMORY = 6 << 30
SLOW_SECONDS = 5.0
HOSTILE: list[Any] = [
    None, True, -1, 0, 10**30, -(10**18), 1e308, "", "\x1b]0;x\x07", "nan", "-inf", "../../etc/passwd",
    "a" * 100_000, [], {}, [[]] * 1000, {"x": 1}, [1] * 5000, "torch.hub", "\ud800",
]  # fmt: skip


def seeds(folder: Path) -> list[bytes]:
    found = []
    for case in CASES:
        path = folder / f"{case}.whynan"
        script = ROOT / "tests" / "cases" / case / "script.py"
        command = [
            sys.executable,
            "-m",
            "whynan",
            "run",
            "--keep-operands",
            "--recording",
            str(path),
        ]
        subprocess.run([*command, script.name], cwd=script.parent, capture_output=True, check=False)
        if path.exists():
            found.append(path.read_bytes())
    return found


def places(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        found.append((value, key))
        if isinstance(item, (dict, list)):
            places(item, found)
    return found


def damaged(data: bytes, rng: random.Random) -> bytes:
    if rng.random() < 0.3:
        raw = bytearray(data)
        for _ in range(rng.choice((1, 3, 30))):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        return bytes(raw[: rng.randrange(len(raw))] if rng.random() < 0.2 else raw)
    plain = json.loads(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        owner, key = rng.choice(places(plain, []))
        owner[key] = copy.deepcopy(rng.choice(HOSTILE))
        if rng.random() < 0.2 and isinstance(owner, dict):
            del owner[key]
    return json.dumps(plain).encode("utf-8", "surrogatepass")


def draw(path: Path) -> None:
    diagnosis = reopen(path)
    show(diagnosis, io.StringIO())
    json.loads(json_report.dumps(diagnosis))
    html.page(diagnosis)
    for evidence in load(path).evidence:
        for held in (h for m in evidence.materials for h in m.tensors):
            try:
                unpack(held)
            except (ValueError, TypeError, AttributeError, RuntimeError):
                pass  # in a process of its own, whose end is told


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    rng, folder = random.Random(given.seed), Path(tempfile.mkdtemp(prefix="whynan-fuzz-"))
    sound, outcomes, slowest = seeds(folder), Counter[str](), 0.0
    path, end = folder / "input.whynan", time.monotonic() + given.minutes * 60
    while time.monotonic() < end:
        data = damaged(rng.choice(sound), rng)
        path.write_bytes(data)
        begin = time.process_time()
        try:
            draw(path)
            outcomes["drawn"] += 1
        except WhynanError:
            outcomes["refused"] += 1
        except Exception:
            outcomes["crashed"] += 1
            (folder / f"crash{outcomes['crashed']}.whynan").write_bytes(data)
            print(traceback.format_exc(limit=-3), flush=True)
        slowest = max(slowest, time.process_time() - begin)
    print(f"{dict(outcomes)}, slowest {slowest:.2f} s of processor time; {folder}")


if __name__ == "__main__":
    main()

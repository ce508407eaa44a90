"""By which way the failing programs of tests/cases are answered.

python benchmarks/ways.py
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.harness import ForkServer

WAYS = ("live", "rewind", "body", "call", "rerun", "no")  # in the order of their cost


def main() -> None:
    cases = sorted(p.parent for p in (ROOT / "tests" / "cases").glob("*/expected.json"))
    programs = ForkServer()
    ways: Counter[str] = Counter()
    for case in cases:
        expected = json.loads((case / "expected.json").read_text())
        report = programs.run(case / "script.py", mode="auto").report or {}
        found = report.get("anomalies") or [{}]
        line = (found[0].get("location") or {}).get("line")
        way = report.get("reproduced", "no")
        ways[way if line == expected["line"] else "other line"] += 1
        if way not in WAYS[:4] or line != expected["line"]:
            print(f"{case.name}: {way}, line {line}", file=sys.stderr, flush=True)
    print(f"{len(cases)} programs: " + ", ".join(f"{way} {n}" for way, n in ways.most_common()))
    programs.close()


if __name__ == "__main__":
    main()

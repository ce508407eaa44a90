"""For every failing program: does the operation that failed stand alone, and how small is it?

PYTHONPATH=. python benchmarks/repro.py        # writes the table of docs/repro.md
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.harness import ForkServer
from whynan.recording import load
from whynan.repro.making import NO_OPERATION, Made, make

PAGE = ROOT / "docs" / "repro.md"
MARK = "## Every program of the tests"
BUDGET_S = 5.0


def main() -> None:
    server = ForkServer()
    rows, alone, none, failed = [], [], 0, 0
    cases = sorted(p.parent for p in (ROOT / "tests" / "cases").glob("*/expected.json"))
    for case in cases:
        expected = json.loads((case / "expected.json").read_text())
        made, kind = _made(server, case, expected.get("mode", "trace"))
        if made:
            alone.append(made)
            where = "backward" if (made.facts or {})["backward"] else expected["phase"]
            values = "some kept" if made.kept else "replaced"
            rows.append(
                f"| {case.name} | {where} | {made.lines} | {made.size:,} | {values} | {made.headline} |"
            )
        else:
            none += kind in NO_OPERATION
            failed += kind not in NO_OPERATION
            rows.append(f"| {case.name} | {expected['phase']} | | | | none: {made.why} |")
        print(rows[-1], flush=True)
    server.close()
    _write(rows, alone, len(cases), none, failed)


def _made(server: ForkServer, case: Path, mode: str) -> tuple[Made, str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recording.json"
        server.run(case / "script.py", mode=mode, recording=str(path), keep_operands=True)
        evidence = load(path).evidence[0]
        kind: Any = evidence.origin_kind
        return make(evidence, Path(folder) / "repro", budget_s=BUDGET_S), kind


def _write(rows: list[str], alone: list[Made], cases: int, none: int, failed: int) -> None:
    lines = sorted(made.lines for made in alone)
    sizes = sorted(made.size for made in alone)
    told = (
        f"{cases} programs. In {none} no operation of torch's made the value: it came in, or was written, or "
        f"only a compiled graph has it. Of the other {cases - none}, {len(alone)} stand alone, {failed} do not.\n"
        f"`repro.py` has {lines[0]} to {lines[-1]} lines, {statistics.median(lines):.0f} at the median; all files of a folder "
        f"have {sizes[0]:,} to {sizes[-1]:,} bytes, {statistics.median(sizes):,.0f} at the median. "
        f"{sum(not made.kept for made in alone)} of the {len(alone)} hold none of the program's values.\n"
    )  # fmt: skip
    head = PAGE.read_text().split(MARK)[0]
    table = (
        "| program | phase | lines | bytes | values | what it shows |\n|---|---|---|---|---|---|\n"
    )
    PAGE.write_text(f"{head}{MARK}\n\n{told}\n{table}" + "\n".join(rows) + "\n")


if __name__ == "__main__":
    main()

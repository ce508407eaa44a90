"""For every failing program: are its causes named, and is there a change that was run and works?

PYTHONPATH=. python benchmarks/repairs.py        # writes docs/repairs.md
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.repair.forked import RepairServer

# Why no change to the source can mend these.
NO_CHANGE = {
    "ema_restart_debias": "the average of nothing has no value; the divisor is a plain number of Python",
    "crf_forward_unreachable": "one sentence forbids every tag: no score can be right for it",
    "gaussian_policy_poly_features": "the sensor reports 2**31 - 1; only the user knows what it should be",
    "grad_hook_scale": "a hook multiplies gradients by 1024 in each of 14 blocks, on purpose",
    "grad_sine_rnn_explode": "the factor 30 per time step is the model itself",
    "opt_schedule_nan_lr": "NumPy makes the schedule's 0 / 0 outside torch",
    "portfolio_cholesky_duplicate": "the covariance has a truly negative eigenvalue",
    "seismic_custom_op": "the failure is inside a custom operator",
}
HEAD = """# Causes and repairs

For each program in `tests/cases`: whether every cause that was noted for it beforehand is among
those that whynan names, and the first change to the source that `whynan fix` verified by running
the changed program past the failing step. `+` joins changes that were needed together. The
programs are whynan's own tests; this shows what it does on them, not how often it is right about
programs it has never met.

"""


def main() -> None:
    server = RepairServer()
    rows, causes, verified = [], 0, 0
    cases = sorted(p.parent for p in (ROOT / "tests" / "cases").glob("*/expected.json"))
    for case in cases:
        expected = json.loads((case / "expected.json").read_text())
        found = server.fix(case / "script.py")
        missed = [c for c in expected["causes"] if c not in found["causes"]]
        causes += not missed
        first = next((f for f in found["fixes"] if f["verdict"] == "verified"), None)
        verified += first is not None
        told = ", ".join(found["causes"]) or "none"
        why = f"missed: {', '.join(missed)}" if missed else told
        change = f"`{first['kind']}`" if first else f"none: {NO_CHANGE.get(case.name, 'unknown')}"
        rows.append(f"| {case.name} | {expected['mechanism']} | {why} | {change} |")
        print(rows[-1], flush=True)
    server.close()
    text = HEAD + (
        f"{len(cases)} cases: all noted causes named in {causes}, a verified change in {verified}.\n\n"
        "| case | mechanism | causes | verified change |\n| --- | --- | --- | --- |\n"
    )
    (ROOT / "docs" / "repairs.md").write_text(text + "\n".join(rows) + "\n")


if __name__ == "__main__":
    main()

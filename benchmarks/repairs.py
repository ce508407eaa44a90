"""For every failing program: are its causes named, and is there a change that was run and works?

PYTHONPATH=. python benchmarks/repairs.py        # writes the table of docs/repairs.md
PYTHONPATH=. python benchmarks/repairs.py benchmarks/repair_programs/fresh_2.txt
                                                 # beside each other: the expert's change, whynan's
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.repair.bundles import advice, unpacked, verified
from tests.repair.forked import RepairServer

# Why no change to the source can mend these.
NO_CHANGE = {
    "ema_restart_debias": "the average of nothing has no value; the divisor is a plain number of Python",
    "card_game_no_legal_action": "a state without a legal action: a finite mask would draw a forbidden one",
    "crf_forward_unreachable": "one sentence forbids every tag: no score can be right for it",
    "gaussian_policy_poly_features": "the sensor reports 2**31 - 1; only the user knows what it should be",
    "grad_hook_scale": "a hook multiplies gradients by 1024 in each of 14 blocks, on purpose",
    "grad_sine_rnn_explode": "the factor 30 per time step is the model itself",
    "opt_schedule_nan_lr": "NumPy makes the schedule's 0 / 0 outside torch",
    "portfolio_cholesky_duplicate": "the covariance has a truly negative eigenvalue",
    "raw_denoise_gamma": "below 0 a gamma has no value; a bound at 0 would stop every gradient",
    "seismic_custom_op": "the failure is inside a custom operator",
}
TABLE = "## The programs of the test suite\n"
HEAD = (
    TABLE
    + """
For each program in `tests/cases`: whether every cause that was noted for it beforehand is among
those that whynan names, and the first change to the source that `whynan fix` verified by running
the changed program past the failing step. `+` joins changes that were needed together.

"""
)


def beside(bundle: Path) -> None:
    """Programs with the change that an expert would make, written down before whynan saw them."""
    server = RepairServer()
    with tempfile.TemporaryDirectory() as folder:
        for part in bundle.read_text().split("=== ")[1:]:
            name, _, text = part.partition("\n")
            experts = [x for x in text.splitlines() if x.startswith("# EXPERT: ")]
            print(f"\n{name}\n{experts[0]}")
            try:
                found = server.fix(unpacked(Path(folder) / name, text))
            except RuntimeError as error:  # one program's failure must not cost the others
                print(f"not looked at: {str(error).strip().splitlines()[-1]}", flush=True)
                continue
            kind, lines = verified(found)
            print(kind or advice(found) or "nothing")
            print("\n".join(f"+{line}" for line in lines), flush=True)
    server.close()


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
    page = ROOT / "docs" / "repairs.md"
    above = page.read_text().split(TABLE)[0]
    page.write_text(above + text + "\n".join(rows) + "\n")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        beside(Path(sys.argv[1]))
    else:
        main()

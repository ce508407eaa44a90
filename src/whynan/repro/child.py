"""The process in which a repro is made small and written: nothing of the program's is loaded there."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from whynan.codec import decode
from whynan.model import Material

VARIABLE = "WHYNAN_REPRO_TASK"


def make(task: dict[str, Any]) -> dict[str, Any]:
    """Write the files into the task's folder; says `why` where there is nothing to be written."""
    from whynan.repro import readme
    from whynan.repro.case import run, width
    from whynan.repro.finding import find
    from whynan.repro.script import TENSORS, compose, packed
    from whynan.repro.shrinking import Search, shrink
    from whynan.repro.values import simplify

    materials = decode(tuple[Material, ...], task["materials"])
    found = find(materials)
    if isinstance(found, str):
        return {"why": found}
    case, material = found
    search = Search(case, budget_s=task["budget_s"])
    shrink(search)
    values = simplify(search, keep=task["keep_values"])
    shown = run(values.case)
    assert shown is not None
    draft = compose(values, headline="")
    said = readme.headline(values.case, shown, draft.call)
    script = compose(values, headline=said)
    folder = Path(task["folder"])
    (folder / "repro.py").write_text(script.text, encoding="utf-8")
    if script.tensors:
        (folder / TENSORS).write_bytes(packed(script.tensors))
    text = readme.write(values, script, material, shown, width(values.case), said)
    (folder / "README.md").write_text(text, encoding="utf-8")
    return {
        "headline": said,
        "lines": script.lines,
        "kind": shown.kind,
        "message": shown.message,
        "backward": values.case.backward,
        "kept": len(values.kept),
        "tries": search.tries,
        "steps": len(values.case.steps),
    }


def main() -> int:
    task = json.loads(Path(os.environ.pop(VARIABLE)).read_text(encoding="utf-8"))
    answer = make(task)
    Path(task["answer"]).write_text(json.dumps(answer), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

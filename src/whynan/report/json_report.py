"""The report as strict JSON, schema `whynan.report/1`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from whynan.diagnosis.naming import call_of
from whynan.files import write_atomically
from whynan.model import Anomaly, Diagnosis, HistoryRow, Link, Operand, Site, kind_of
from whynan.source.quotes import short_path

SCHEMA = "whynan.report/1"


def report(diagnosis: Diagnosis) -> dict[str, Any]:
    """The whole contract as plain values."""
    return {
        "schema": SCHEMA,
        "outcome": diagnosis.outcome,
        "script": diagnosis.script,
        "steps": diagnosis.steps,
        "mode": diagnosis.mode,
        "reproduced": diagnosis.reproduced,
        "versions": dict(diagnosis.versions),
        "run": dict(diagnosis.run),
        "anomalies": [_anomaly(a) for a in diagnosis.anomalies],
        "history": [_row(r) for r in diagnosis.history],
        "notes": list(diagnosis.notes),
    }


def _row(row: HistoryRow) -> dict[str, Any]:
    """The contract's four numbers always, the others where they were measured."""
    found = {"step": row.step, "loss": row.loss, "grad_max": row.grad_max, "lr": row.lr}
    more = {name: getattr(row, name) for name in ("grad_norm", "update_ratio", "scale", "layers")}
    return found | {name: value for name, value in more.items() if value is not None}


def _anomaly(anomaly: Anomaly) -> dict[str, Any]:
    evidence, finding, origin = anomaly.evidence, anomaly.finding, anomaly.origin
    out = origin.outputs[0] if origin.outputs else None
    values = (origin.value, *(op.value for op in evidence.path), evidence.sink_value)
    bad = next((v for v in values if v is not None and not math.isfinite(v)), math.nan)
    sample = evidence.around.sample
    return {
        "value": kind_of(bad),
        "phase": origin.phase,
        "step": origin.step,
        "rank": evidence.rank or 0,
        "ranks": list(evidence.ranks),
        "sink": evidence.sink,
        "subject": evidence.subject,
        "location": _site(origin.site),
        "caller": _site(origin.site.caller) if origin.site and origin.site.caller else None,
        "module": origin.module,
        "op": origin.op,
        "call": call_of(origin),
        "node": origin.node,
        "code": finding.code,
        "mechanism": finding.mechanism,
        "causes": [{"code": c.code, "evidence": c.evidence} for c in finding.causes],
        "count": out.stats.nonfinite if out and out.stats else None,
        "numel": out.stats.count if out and out.stats else None,
        "first_index": _first_index(out),
        "sample": sample.index if sample and not sample.is_alone else None,
        "dataset_index": sample.dataset_index if sample else None,
        **({"item": sample.called} if sample and sample.called else {}),
        "samples": {"bad": sample.bad, "of": sample.size} if sample and not sample.is_alone else None,
        "sample_inferred": sample.inferred if sample else False,
        "operands": [_operand(o) for o in origin.inputs],
        "chain": [_link(link) for link in anomaly.chain],
        "headline": finding.headline,
        "explanation": " ".join(_sentence(t) for t in (*finding.observed, *finding.inferred, *finding.unknown)),
        "observed": list(finding.observed),
        "inferred": list(finding.inferred),
        "unknown": [*finding.unknown, *([evidence.incomplete] if evidence.incomplete else [])],
        "effect": evidence.effect,
        **({"as_compiled": evidence.as_compiled} if evidence.as_compiled else {}),
        "parameter": evidence.parameter,
        "fixes": [
            {"kind": f.kind, "title": f.title, "patch": f.patch, "verdict": f.verdict, "evidence": f.evidence}
            for f in finding.fixes
        ],
    }  # fmt: skip


def _first_index(out: Operand | None) -> list[int] | None:
    index = None if out is None else out.first if out.first is not None else out.index
    return None if index is None else list(index)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


def _site(site: Site | None) -> dict[str, Any] | None:
    if site is None:
        return None
    return {
        "file": short_path(site.file),
        "line": site.line,
        "end_line": site.end_line,
        "column": site.column,
        "end_column": site.end_column,
        "function": site.function,
        "source": site.source,
    }


def _operand(operand: Operand) -> dict[str, Any]:
    stats = operand.stats
    return {
        "role": operand.role,
        "name": operand.name,
        "shape": list(stats.shape) if stats else None,
        "dtype": stats.dtype if stats else None,
        "min": stats.min if stats else None,
        "max": stats.max if stats else None,
        "nan": stats.nan if stats else None,
        "inf": stats.inf if stats else None,
        "zeros": stats.zeros if stats else None,
        "value": operand.value,
        "source": operand.source,
    }


def _link(link: Link) -> dict[str, Any]:
    return {
        "location": _site(link.site),
        "op": link.op,
        "value": link.value,
        "note": link.note,
        "role": link.role,
    }


def strict(value: Any) -> Any:
    """JSON has no NaN: non-finite numbers become the strings the contract names."""
    if isinstance(value, float) and not math.isfinite(value):
        return kind_of(value)
    if isinstance(value, dict):
        return {key: strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [strict(item) for item in value]
    return value


def dumps(diagnosis: Diagnosis) -> str:
    return json.dumps(strict(report(diagnosis)), indent=2, allow_nan=False) + "\n"


def write(diagnosis: Diagnosis, path: Path) -> None:
    """Atomically: a reader sees the old report or the new one, never half of one."""
    write_atomically(path, dumps(diagnosis))

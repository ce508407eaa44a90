"""The nouns that cross folder borders: plain frozen values, free of torch."""

from __future__ import annotations

from whynan.model.change import ADVICE, Fix
from whynan.model.circumstances import (
    Circumstances,
    Fetch,
    Growth,
    HistoryRow,
    Layer,
    LayerSpread,
    Oddity,
    Sample,
    Setting,
    Unstable,
)
from whynan.model.climb import Climb, Rung
from whynan.model.diagnosis import (
    Anomaly,
    Cause,
    Diagnosis,
    Finding,
    Link,
    Outcome,
)
from whynan.model.evidence import (
    FROM_BEFORE,
    FROM_GRADIENT,
    FROM_LOADER,
    ITSELF,
    REFUSED,
    AsCompiled,
    Evidence,
    Operand,
    OpRecord,
    Origin,
    Phase,
    Scalar,
    Sink,
    Site,
    base_name,
)
from whynan.model.material import BadKind, Call, Held, Material
from whynan.model.opinions import Opinion, Opinions
from whynan.model.tensors import TensorStats, dotted, kind_of, number

__all__ = [
    "ADVICE",
    "FROM_BEFORE",
    "FROM_GRADIENT",
    "FROM_LOADER",
    "ITSELF",
    "REFUSED",
    "Anomaly",
    "AsCompiled",
    "BadKind",
    "Call",
    "Cause",
    "Circumstances",
    "Climb",
    "Diagnosis",
    "Evidence",
    "Fetch",
    "Finding",
    "Fix",
    "Growth",
    "Held",
    "HistoryRow",
    "Layer",
    "LayerSpread",
    "Link",
    "Material",
    "Oddity",
    "OpRecord",
    "Operand",
    "Opinion",
    "Opinions",
    "Origin",
    "Outcome",
    "Phase",
    "Rung",
    "Sample",
    "Scalar",
    "Setting",
    "Sink",
    "Site",
    "TensorStats",
    "Unstable",
    "base_name",
    "dotted",
    "kind_of",
    "number",
]

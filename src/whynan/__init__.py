"""whynan: why is there a NaN in my tensors, and what do I change?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from whynan.version import __version__

if TYPE_CHECKING:
    from whynan.arrays.namespace import trace_arrays
    from whynan.checking.values import assert_finite, check
    from whynan.checking.verdicts import Check
    from whynan.errors import AnomalyFound, CheckFailed, WhynanError
    from whynan.model import Anomaly, Diagnosis, TensorStats
    from whynan.recording import load
    from whynan.run.blocks import diagnose_trace as diagnose
    from whynan.run.blocks import trace, watch

__all__ = [
    "Anomaly",
    "AnomalyFound",
    "Check",
    "CheckFailed",
    "Diagnosis",
    "TensorStats",
    "WhynanError",
    "__version__",
    "assert_finite",
    "check",
    "diagnose",
    "load",
    "trace",
    "trace_arrays",
    "watch",
]

_homes = {
    "Anomaly": ("whynan.model", "Anomaly"),
    "AnomalyFound": ("whynan.errors", "AnomalyFound"),
    "Check": ("whynan.checking.verdicts", "Check"),
    "CheckFailed": ("whynan.errors", "CheckFailed"),
    "Diagnosis": ("whynan.model", "Diagnosis"),
    "TensorStats": ("whynan.model", "TensorStats"),
    "WhynanError": ("whynan.errors", "WhynanError"),
    "assert_finite": ("whynan.checking.values", "assert_finite"),
    "check": ("whynan.checking.values", "check"),
    "diagnose": ("whynan.run.blocks", "diagnose_trace"),
    "load_ipython_extension": ("whynan.adapters.jupyter", "load_ipython_extension"),
    "load": ("whynan.recording", "load"),
    "trace": ("whynan.run.blocks", "trace"),
    "watch": ("whynan.run.blocks", "watch"),
    "trace_arrays": ("whynan.arrays.namespace", "trace_arrays"),
}


def __getattr__(name: str) -> Any:
    """Public names are imported at first use, so that `import whynan` costs nothing."""
    import importlib

    if name == "stable":  # needs torch, so `from whynan import *` must not import it
        return importlib.import_module("whynan.stable")
    if name not in _homes:
        raise AttributeError(f"module 'whynan' has no attribute {name!r}")
    module, attribute = _homes[name]
    return getattr(importlib.import_module(module), attribute)


def __dir__() -> list[str]:
    return __all__

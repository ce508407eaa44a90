"""whynan: why is there a NaN in my tensors, and what do I change?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from whynan.version import __version__

if TYPE_CHECKING:
    from whynan.errors import AnomalyFound, WhynanError
    from whynan.model import Anomaly, Diagnosis, TensorStats
    from whynan.pipeline import diagnose_trace as diagnose
    from whynan.pipeline import trace, watch
    from whynan.recording import load

__all__ = [
    "Anomaly",
    "AnomalyFound",
    "Diagnosis",
    "TensorStats",
    "WhynanError",
    "__version__",
    "diagnose",
    "load",
    "trace",
    "watch",
]

_homes = {
    "Anomaly": ("whynan.model", "Anomaly"),
    "AnomalyFound": ("whynan.errors", "AnomalyFound"),
    "Diagnosis": ("whynan.model", "Diagnosis"),
    "TensorStats": ("whynan.model", "TensorStats"),
    "WhynanError": ("whynan.errors", "WhynanError"),
    "diagnose": ("whynan.pipeline", "diagnose_trace"),
    "load_ipython_extension": ("whynan.adapters.jupyter", "load_ipython_extension"),
    "load": ("whynan.recording", "load"),
    "trace": ("whynan.pipeline", "trace"),
    "watch": ("whynan.pipeline", "watch"),
}


def __getattr__(name: str) -> Any:
    """Public names are imported at first use, so that `import whynan` costs nothing."""
    if name not in _homes:
        raise AttributeError(f"module 'whynan' has no attribute {name!r}")
    import importlib

    module, attribute = _homes[name]
    return getattr(importlib.import_module(module), attribute)


def __dir__() -> list[str]:
    return __all__

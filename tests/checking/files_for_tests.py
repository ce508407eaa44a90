"""Makers of the files that the tests of `whynan check` read."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from whynan.checking.files import FileReport, check_file


def sample() -> torch.Tensor:
    """40 x 30 numbers with a NaN at [3, 4]."""
    x = torch.randn(40, 30, generator=torch.Generator().manual_seed(0))
    x[3, 4] = math.nan
    return x


def checked(path: Path) -> FileReport:
    return check_file(path, lambda size: None)


def saved(path: Path, value: Any, **options: Any) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if path.suffix == ".npy":
            np.save(path, value, **options)
        else:
            torch.save(value, path, **options)
    return path


def bad_names(report: FileReport) -> list[str]:
    assert report.error is None, report.error
    return [item.name for item in report.bad]

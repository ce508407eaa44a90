"""The state of the run around a failure: its steps, its batch, its layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRow:
    """One step in numbers."""

    step: int
    loss: float | None = None
    grad_max: float | None = None  # the largest 2-norm of a parameter's gradient
    grad_norm: float | None = None  # of all gradients together
    update_ratio: float | None = None  # how far the update moved the weights, in their own size
    scale: float | None = None  # of the loss, under GradScaler
    lr: float | None = None
    # Some rows only: {parameter: (2-norm of its gradient, 2-norm of its weights)}
    layers: Mapping[str, tuple[float, float]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSpread:
    """How the finite values of one layer lie, as counted in a sample of them."""

    layer: str
    kind: Literal["weights", "gradients"]
    min: float
    max: float
    sum: float
    sum_squares: float
    limits: tuple[float, ...]  # the upper end of each bin
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Which sample of the batch leads to the failure."""

    index: int  # within the batch
    size: int  # of the batch
    bad: int = 1  # samples of this batch that do
    dataset_index: int | None = None  # when the sampler reveals it
    inferred: bool = False  # not seen in its rows: without it the step stays healthy
    column: str | None = None  # what of the item is bad as the loader gave it
    called: str | None = None  # the file or the text that the item is, where the dataset has it
    table: str | None = None  # of a batch that no loader made: what its rows were taken from

    @property
    def is_alone(self) -> bool:
        """An item of a list of the program's, in no batch."""
        return self.size == 1 and self.table is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """The last batch that a DataLoader gave before the failure."""

    number: int  # counted from 1, over all loaders
    size: int
    indices: tuple[int, ...] | None = None  # of the dataset, when the sampler reveals them


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A weight as it was initialised, against what its number of inputs asks for."""

    name: str
    shape: tuple[int, ...]
    rms: float
    usual: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Oddity:
    """A value in the data that is far from its column, or a column far from the others."""

    what: Literal["outlier", "unscaled"]
    value: float
    typical: float  # magnitude of the other values, or of the other columns
    row: int | None = None
    column: int | None = None
    table: str | None = None  # what the program calls the table that the row is one of
    earlier: bool = False  # of all the data that this batch was cut from: an earlier one held it


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A number of the user's that an operation was given, perhaps inside a library."""

    name: str
    value: float
    file: str
    line: int
    text: str  # as it is set there


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """The largest value that one line was given, from the first time in a step to the last."""

    rounds: int
    first: float
    last: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Unstable:
    """A number given to the optimizer with which weights grow by themselves, whatever the gradient."""

    name: str
    value: float
    why: str
    where: str = ""  # the one place where the user sets it


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """The state of the run when it failed: what causes are read from."""

    history: tuple[HistoryRow, ...] = ()
    sample: Sample | None = None
    fetch: Fetch | None = None
    workers: int = 0  # processes that the last batch came from
    loads: bool = False  # batches come from a DataLoader
    remade: int | None = None  # the item that the dataset was asked for once more, in this process
    layers: tuple[Layer, ...] = ()  # those that look wrong
    oddity: Oddity | None = None
    odd_cell: Oddity | None = None  # of the one row that leads to the origin, far from all others
    input_size: float | None = None  # the usual magnitude of the largest feature of the batch
    weight_norm: float | None = None  # the largest of a parameter
    moved: float | None = None  # how far the last update can have moved a parameter, as a norm
    moved_lately: float | None = None  # all updates since the loss was lowest
    setting: Setting | None = None
    small_eps: Setting | None = None  # that the type rounds to 0
    unstable: Unstable | None = None
    growth: Growth | None = None  # where the origin's line ran again and again in its step
    loss_factor: float | None = None  # the number that the loss was multiplied by at last

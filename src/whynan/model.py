"""The nouns that cross folder borders: plain frozen values, free of torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Phase = Literal["forward", "backward", "optimizer", "data", "init"]
Sink = Literal["loss", "gradient", "parameter", "output", "observed", "exception"]
Scalar = float | int | bool | str | None
# Sources of an operand.
FROM_BEFORE = "value from before the recording"
FROM_LOADER = "data from a DataLoader"
FROM_GRADIENT = "gradient from before the recording"


def number(value: float | complex | None) -> str:
    """A number as a reader wants it: short, and non-finite values by name.

    >>> number(float("-inf")), number(0.0), number(1234567.0), number(-118.4321)
    ('-inf', '0', '1.235e+06', '-118.4')
    """
    if value is None:
        return "?"
    if isinstance(value, complex):
        return f"{number(value.real)}{'' if value.imag < 0 else '+'}{number(value.imag)}j"
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return f"{value:.4g}"


def kind_of(value: float | complex) -> Literal["nan", "inf", "-inf"]:
    """Name the kind of a non-finite number."""
    if isinstance(value, complex):
        value = value.real if not math.isfinite(value.real) else value.imag
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return "nan"


def dotted(shape: tuple[int, ...]) -> str:
    """A shape as people write it: `64x10`, `scalar`."""
    return "x".join(map(str, shape)) or "scalar"


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorStats:
    """One tensor in one line: shape, type, range and trouble.

    `min` and `max` are over the finite values; they are None when there is none.
    """

    shape: tuple[int, ...]
    dtype: str
    device: str = "cpu"
    min: float | None = None
    max: float | None = None
    nan: int = 0
    posinf: int = 0
    neginf: int = 0
    zeros: int = 0
    negatives: int = 0
    exponents: Mapping[int, int] | None = None  # how many values have each binary exponent

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    @property
    def inf(self) -> int:
        return self.posinf + self.neginf

    @property
    def nonfinite(self) -> int:
        return self.nan + self.inf

    def __str__(self) -> str:
        parts = [f"{self.dtype} {dotted(self.shape)}"]
        if self.min is not None and self.max is not None:
            parts.append(f"in [{number(self.min)}, {number(self.max)}]")
        zeros = "zero" if self.zeros == 1 else "zeros"
        trouble = {"NaN": self.nan, "inf": self.posinf, "-inf": self.neginf, zeros: self.zeros}
        parts += [f"{n:,} {name}" for name, n in trouble.items() if n]
        return ", ".join(parts)

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        from whynan.report import html

        return html.tensor_fragment(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A place in the source: the exact expression, as typed."""

    file: str
    line: int
    end_line: int
    column: int | None
    end_column: int | None
    function: str
    source: str
    expression: str = ""
    caller: Site | None = None  # the user's own line, when `file` belongs to an installed package

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """One tensor that an operation read or wrote, and its value at the witness."""

    role: str
    stats: TensorStats | None  # None: the values were no longer in memory
    name: str | None = None
    index: tuple[int, ...] | None = None  # of the witness
    first: tuple[int, ...] | None = None  # of the first non-finite element
    columns: tuple[int, ...] = ()  # of a table that came in, those without any finite value
    dtype: str | None = None
    value: float | None = None
    slice_stats: TensorStats | None = None  # the part of the tensor that the witness depends on
    source: str | None = None  # what it is, when nothing recorded made it: "parameter fc.weight"
    upstream: tuple[OpRecord, ...] = ()  # how this value came about, nearest operation first


@dataclass(frozen=True, slots=True, kw_only=True)
class OpRecord:
    """One operation as it ran."""

    index: int
    op: str
    phase: Phase
    step: int
    site: Site | None
    inputs: tuple[Operand, ...] = ()
    outputs: tuple[Operand, ...] = ()
    scalars: Mapping[str, Scalar] = field(default_factory=dict)
    module: str | None = None
    inside: str | None = None  # innermost library function around the operation: "F.cross_entropy"
    node: str | None = None  # autograd node, in the backward pass
    derived: bool = False  # part of torch's own derivative formula, not written by anyone
    is_slope: bool = False  # of such a formula, a part that no gradient has gone into yet
    exact: float | None = None  # the witness recomputed in float64
    untouched: bool = False  # it puts values at places, and put none at the witness's

    @property
    def name(self) -> str:
        """`log` for `aten.log.default`, `add` for `aten.add_.Tensor`."""
        return base_name(self.op)

    @property
    def value(self) -> float | None:
        """The witness's value in the output."""
        return self.outputs[0].value if self.outputs else None

    @property
    def dtype(self) -> str:
        """Of the output."""
        return (self.outputs[0].dtype if self.outputs else None) or "float32"

    @property
    def out(self) -> TensorStats | None:
        return self.outputs[0].stats if self.outputs else None

    def operand(self, *roles: str) -> Operand | None:
        """The first input with one of these roles."""
        return next(
            (o for role in roles for o in self.inputs if o.role.split("[")[0] == role), None
        )

    def scalar(self, *roles: str) -> float | None:
        """The first plain number given for one of these arguments."""
        found = (self.scalars.get(role) for role in roles)
        return next((float(v) for v in found if isinstance(v, (int, float))), None)


def base_name(op: str) -> str:
    """The bare operation: no namespace, overload, in-place mark or list form.

    >>> base_name("aten.log_.default"), base_name("aten._foreach_div_.List")
    ('log', 'div')
    """
    parts = op.split(".")
    return (parts[1] if len(parts) > 2 else parts[0]).rstrip("_").removeprefix("_foreach_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Which sample of the batch leads to the failure."""

    index: int  # within the batch
    size: int  # of the batch
    bad: int = 1  # samples of this batch that do
    dataset_index: int | None = None  # when the sampler reveals it
    inferred: bool = False  # not seen in its rows: without it the step stays healthy


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
    input_size: float | None = None  # the usual magnitude of the largest feature of the batch
    weight_norm: float | None = None  # the largest of a parameter
    moved: float | None = None  # how far the last update can have moved a parameter, as a norm
    moved_lately: float | None = None  # all updates since the loss was lowest
    loss_factor: float | None = None  # the number that the loss was multiplied by at last


Origin = Literal[
    "operation", "entry", "number", "literal", "uninitialised", "raised", "absorbed", "unseen"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What the recorder saw of one harm: origin, the way to the sink, and the sink."""

    sink: Sink
    subject: str  # "loss", "gradient of fc.weight"
    step: int
    origin: OpRecord
    origin_kind: Origin
    path: tuple[OpRecord, ...] = ()  # from after the origin to the sink
    sink_site: Site | None = None
    sink_value: float | None = None
    effect: str | None = None  # what a silent harm did: "every gradient became 0"
    message: str | None = None  # of the exception that was the sink
    parameter: str | None = None
    hyper: Mapping[str, Scalar] = field(default_factory=dict)
    incomplete: str | None = None  # why the origin is not certain
    # Source lines by file, in a saved run: the files may have changed since, or be elsewhere.
    quotes: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    around: Circumstances = field(default_factory=lambda: Circumstances())
    rank: int | None = None  # in a job of several processes: where it was born
    ranks: tuple[str, ...] = ()  # what the other ones have to say

    @property
    def is_from_worker(self) -> bool:
        """Bad as it came, from a DataLoader whose dataset is asked in other processes."""
        origin = self.origin
        loaded = any(o.source == FROM_LOADER for o in origin.inputs)
        loaded |= "DataLoader" in (origin.inside or "")
        return self.origin_kind == "entry" and loaded and self.around.workers > 0


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
class Fix:
    """A proposed change to the source, and what is known about it."""

    kind: str
    title: str
    patch: str | None = None
    verdict: Literal["verified", "failed", "not_tried"] = "not_tried"
    evidence: str = "not verified: suggested by the rule; `whynan fix` tries changes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why the operands were like that, with the evidence for saying so."""

    code: str
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A rule's claim about an origin; the engine adds which rule it was."""

    headline: str
    code: str = ""
    slug: str = ""
    mechanism: str = ""
    observed: tuple[str, ...] = ()
    inferred: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    label: str = ""  # under the carets
    culprit: int | None = None  # which input explains it
    causes: tuple[Cause, ...] = ()
    fixes: tuple[Fix, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One stage of the chain: where, what, and the witness's value there."""

    site: Site | None
    op: str
    value: float | None
    note: str
    role: Literal["reason", "origin", "path", "sink"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    """One harm, fully explained."""

    evidence: Evidence
    finding: Finding
    chain: tuple[Link, ...]

    @property
    def origin(self) -> OpRecord:
        return self.evidence.origin


Outcome = Literal["clean", "anomaly", "crashed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The answer: what went wrong first, or that nothing did."""

    anomalies: tuple[Anomaly, ...]
    outcome: Outcome
    steps: int
    script: str
    mode: str = "trace"
    reproduced: str = "live"
    history: tuple[HistoryRow, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """True when an anomaly was found."""
        return bool(self.anomalies)

    def __str__(self) -> str:
        from whynan.report.plain import render_text

        return render_text(self)

    def _repr_html_(self) -> str:
        """How a notebook shows it; `print` gives the text."""
        from whynan.report import html

        return html.fragment(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

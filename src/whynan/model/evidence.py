"""What the recorder saw of one harm: places, operations, and the way to the sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from whynan.model.change import Fix
from whynan.model.circumstances import Circumstances
from whynan.model.climb import Climb
from whynan.model.material import Material
from whynan.model.opinions import Opinions
from whynan.model.tensors import TensorStats

Phase = Literal["forward", "backward", "optimizer", "data", "init"]
Sink = Literal["loss", "gradient", "parameter", "output", "observed", "exception"]
Origin = Literal[
    "operation",
    "entry",
    "number",
    "literal",
    "uninitialised",
    "raised",
    "absorbed",
    "compiled",
    "unseen",
]
# Of harm that was recorded in eager mode: what the program does when it runs compiled.
AsCompiled = Literal["finite", "bad", "unseen"]
Scalar = float | int | bool | str | None
# Sources of an operand.
FROM_BEFORE = "value from before the recording"
REFUSED = (
    "refused"  # the name of an origin that is no operation: a distribution refused a finite value
)
FROM_LOADER = "data from a DataLoader"
ITSELF = "the element that it is taken from"
FROM_GRADIENT = "gradient from before the recording"


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
    eigenvalues: tuple[float, float] | None = None  # of a symmetric matrix, the lowest and largest
    source: str | None = None  # what it is, when nothing recorded made it: "parameter fc.weight"
    kept_as: str | None = None  # what it was loaded into: "parameter fc.weight"
    file: str | None = None  # that it was loaded from
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
    opinions: Opinions | None = None  # of an origin: what other implementations make of it
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
    climb: Climb | None = None  # where a compiled function departs from eager mode
    as_compiled: AsCompiled | None = None  # None: nothing is compiled, or it was seen so
    incomplete: str | None = None  # why the origin is not certain
    # Source lines by file, in a saved run: the files may have changed since, or be elsewhere.
    quotes: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    around: Circumstances = field(default_factory=Circumstances)
    rank: int | None = None  # in a job of several processes: where it was born
    ranks: tuple[str, ...] = ()  # what the other ones have to say
    # Where it was asked for: ways to repeat the origin by itself, the most telling one first.
    materials: tuple[Material, ...] = ()
    change: Fix | None = None  # the first that the source and the values show, not tried

    @property
    def is_from_worker(self) -> bool:
        """Bad as it came, from a DataLoader whose dataset is asked in other processes."""
        origin = self.origin
        loaded = any(o.source == FROM_LOADER for o in origin.inputs)
        loaded |= "DataLoader" in (origin.inside or "")
        return self.origin_kind == "entry" and loaded and self.around.workers > 0

"""A compiled function that goes bad where the same function in eager mode does not, rung by rung."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One stage of the compiler, run on the recorded inputs."""

    name: str  # of the backend of torch.compile: "aot_eager"
    bad: int  # values that are not finite, and are in eager mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Climb:
    """From eager mode up to the program's own backend: where it turns bad."""

    rungs: tuple[Rung, ...]
    graph: int  # in the order in which the graphs ran in the step
    graphs: int
    operations: int  # of that graph; 0: not taken apart
    # Whether the origin's compiled result is not what torch makes of the same operands; else no
    # operation is wrong by itself, and only the rounding on the way there is another.
    departs: bool = False
    # At the witness: what the compiled graph makes of the origin's operands, and what torch does.
    compiled: float | None = None
    eager: float | None = None

    @property
    def turn(self) -> Rung:
        """The first one that is bad."""
        return next(rung for rung in self.rungs if rung.bad)

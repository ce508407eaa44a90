"""Random programs with one planted fault: the origin found is the planted one."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from itertools import count

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import whynan
from tests.harness import besides

# Finite, well-behaved steps on a (4, 5) tensor `x`: none of them makes or hides a NaN.
HARMLESS = (
    "x = x * 0.5 + 0.1",
    "x = torch.tanh(x)",
    "x = x.t().contiguous().t()",
    "x = torch.cat([x[:2], x[2:]], dim=0)",
    "x = x - x.mean(dim=0, keepdim=True)",
    "x = x.softmax(dim=1)",
    "x = (x @ mix).view(4, 5)",
    "x = x.clone().mul_(0.9)",
    "x = torch.stack(list(x.unbind(1)), dim=1)",
    "x = nn.functional.layer_norm(x, (5,))",
    "x = x.masked_fill(mask, float('-inf')).exp() + 0.01",
    "x = torch.where(mask, x, x.sigmoid())",
    "x = x.double().float()",
    "x = x.roll(1, dims=0)",
)
# One line each; whatever `x` is, the result holds a NaN, which no later line can absorb.
FAULTS = {
    "x = (x - x) / (x - x)": "division_by_zero",
    "x = torch.log(x - x.max() - 1)": "log_nonpositive",
    "x = (x - x.max() - 1).sqrt()": "sqrt_negative",
    "x = torch.acos(x.abs() + 2)": "invalid_domain",
    "x = torch.exp(x * 0 + 200) * 0": "overflow",
    "x = ((x.half() * 0 + 300) ** 2 * 0).float()": "overflow",
    "x = x + x[:, :0].mean()": "empty_reduction",
    "x = x.masked_fill(mask | True, float('-inf')).softmax(1)": "all_masked_softmax",
    "x = (mask * 0) * float('inf') + x": "zero_times_inf",
    "x = x + torch.from_numpy(table)": "nonfinite_data",
}
# The same, but only the gradient is non-finite.
BACKWARD_FAULTS = {
    "x = x + (x - x).sqrt()": "gradient_singularity",
    "x = x + torch.where(mask, x, (x - x).abs().pow(0.3) * 0)": "gradient_singularity",
}
_serial = count()


def build(lines: list[str]) -> tuple[Callable[[], None], str]:
    """Compile a program whose source the tracer can quote."""
    body = "\n".join(f"    {line}" for line in lines)
    source = (
        "import numpy as np\nimport torch\nfrom torch import nn\n"
        "def program():\n"
        "    torch.manual_seed(0)\n"
        "    w = torch.randn(4, 5, requires_grad=True)\n"
        "    mix = torch.randn(5, 5) * 0.3\n"
        "    mask = torch.zeros(4, 5, dtype=torch.bool)\n"
        "    mask[1, 2] = True\n"
        "    table = np.array([[1.0, np.nan, 0.0, 2.0, 3.0]], dtype=np.float32)\n"
        f"    x = w\n{body}\n"
        "    x.float().sum().backward()\n"
        "    return w\n"
    )
    name = f"<doctest random {next(_serial)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    space: dict[str, Callable[[], None]] = {}
    exec(compile(source, name, "exec"), space)
    return space["program"], source


harmless = st.lists(st.sampled_from(HARMLESS), max_size=5)


@settings(derandomize=True, max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(before=harmless, fault=st.sampled_from(sorted(FAULTS)), after=harmless)
def test_the_planted_fault_is_found(before: list[str], fault: str, after: list[str]) -> None:
    program, source = build([*before, fault, *after])
    with whynan.trace() as trace:
        program()
    first = whynan.diagnose(trace).anomalies[0]
    assert first.origin.site is not None
    assert (first.origin.site.source, first.finding.mechanism) == (fault, FAULTS[fault]), source


@settings(derandomize=True, max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(before=harmless, fault=st.sampled_from(sorted(BACKWARD_FAULTS)), after=harmless)
def test_the_planted_gradient_fault_is_found(
    before: list[str], fault: str, after: list[str]
) -> None:
    program, source = build([*before, fault, *after])
    with whynan.trace() as trace:
        kept = program()
    del kept
    first = whynan.diagnose(trace).anomalies[0]
    assert first.origin.site is not None
    assert (first.origin.site.source, first.finding.mechanism, first.origin.phase) == (
        fault, BACKWARD_FAULTS[fault], "backward",
    ), source  # fmt: skip


@settings(derandomize=True, max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(lines=st.lists(st.sampled_from(HARMLESS), max_size=10))
def test_programs_without_a_fault_are_silent(lines: list[str]) -> None:
    program, source = build(lines)
    with whynan.trace() as trace:
        kept = program()
    del kept
    diagnosis = whynan.diagnose(trace)
    assert diagnosis.anomalies == (), source
    assert besides(diagnosis.notes) == []

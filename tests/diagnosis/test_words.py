"""What a report says is true of the program it is about, and says no more than was seen."""

from __future__ import annotations

import contextlib
import textwrap
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.builders import origin
from tests.harness import ForkServer
from whynan.diagnosis.circumstances import causes_around
from whynan.diagnosis.engine import diagnose
from whynan.model import Circumstances, Evidence, HistoryRow
from whynan.recording import load
from whynan.report.json_report import report


@dataclass(frozen=True)
class Told:
    """The first anomaly and the report as a person reads it, on one line."""

    first: dict[str, Any]
    text: str

    @property
    def headline(self) -> str:
        return str(self.first["headline"])

    @property
    def causes(self) -> dict[str, str]:
        return {c["code"]: c["evidence"] for c in self.first["causes"]}

    @property
    def helps(self) -> list[str]:
        return [fix["title"] for fix in self.first["fixes"]]


def tell(programs: ForkServer, folder: Path, program: str) -> Told:
    script = folder / "program.py"
    script.write_text(textwrap.dedent(program))
    result = programs.run(script, cwd=folder, recording=str(folder / "recording.json"))
    assert result.report is not None
    assert result.report["anomalies"], result.stderr
    # The rule's own words: what is read from the source has tests in tests/repair.
    recording = load(folder / "recording.json")
    evidence = tuple(replace(e, change=None) for e in recording.evidence)
    with contextlib.chdir(folder):
        found = diagnose(replace(recording, evidence=evidence))
    return Told(report(found)["anomalies"][0], " ".join(str(found).split()))


ENTROPY = """
import torch
scores = torch.tensor([[0.3, 0.1, {low}]], requires_grad=True)
p = scores.softmax(-1)
loss = -torch.where(p > 0, p * p.log(), 0.0).sum()
loss.backward()
print(scores.grad)
"""


def test_the_zero_of_a_masked_entry_was_not_rounded(programs: ForkServer, tmp_path: Path) -> None:
    told = tell(programs, tmp_path, ENTROPY.format(low="float('-inf')"))
    assert "`softmax` gave to a masked (-inf) entry" in told.headline
    assert "rounds to 0" not in told.text
    assert [*told.causes] == ["empty_mask"]
    assert "`torch.where(p > 0, p, 1).log()`" in told.helps[0]
    assert not any("log_softmax" in title for title in told.helps)


def test_the_zero_of_a_small_entry_was_rounded(programs: ForkServer, tmp_path: Path) -> None:
    told = tell(programs, tmp_path, ENTROPY.format(low="-300.0"))
    assert "had rounded to 0" in told.headline
    assert {"underflow", "wrong_function"} <= set(told.causes)
    assert "log_softmax" in told.helps[0]


def test_the_slope_of_a_power_is_taken_at_its_base(programs: ForkServer, tmp_path: Path) -> None:
    program = """
    import torch
    base, exponent = torch.tensor([2.0, 0.0], requires_grad=True), torch.tensor(3.0)
    base.pow(1 / exponent).sum().backward()
    print(base.grad)
    """
    told = tell(programs, tmp_path, program)
    assert told.headline.endswith("because `pow` has no finite gradient at 0")
    assert "-0.6667" not in told.headline
    assert "1 of the 2 values there is exactly 0" in told.text


def test_a_norm_that_overflowed_is_no_infinite_gradient(
    programs: ForkServer, tmp_path: Path
) -> None:
    program = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    x, y = 4000 * torch.rand(40, 2), torch.rand(40, 1)
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(20):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    """
    growth = tell(programs, tmp_path, program).causes["exploding_gradients"]
    assert "the largest gradient norm grew from" in growth
    assert "to inf" not in growth
    assert growth.endswith("then beyond what can be measured")


OBSERVATION = """
import torch
from torch import nn
from torch.utils.data import DataLoader
net = nn.Linear({wide}, 2)
items = [torch.tensor({item}) for i in range(4)]
for x in {source}:
    out = net({given})
    print(out)
"""


def test_the_features_of_one_sample_are_no_batch(programs: ForkServer, tmp_path: Path) -> None:
    program = OBSERVATION.format(
        wide=4, item="[1.0, 2.0, 0.0, 3.0]", source="items", given="1 - x / x"
    )
    told = tell(programs, tmp_path, program)
    assert told.first["sample"] is None
    assert "in the batch" not in told.text


def test_one_number_each_from_a_loader_is_a_batch(programs: ForkServer, tmp_path: Path) -> None:
    program = OBSERVATION.format(
        wide=4, item="float(i - 2)", source="DataLoader(items, batch_size=4)", given="1 - x / x"
    )
    assert tell(programs, tmp_path, program).first["sample"] == 2


@pytest.mark.parametrize(
    ("use", "words"),
    [
        ("torch.where(x > 0, d, 0.0).sum()", "`where` left this element out afterwards"),
        ("d.masked_fill(x == 0, 0).sum()", "`masked_fill` replaced this element afterwards"),
        ("d[x > 0].sum()", "this element was not selected afterwards"),
        ("(d * (x > 0)).sum()", "this element was multiplied by 0 afterwards"),
        ("(d * (x > 0).float()).sum()", "this element was multiplied by 0 afterwards"),
        ("d.max()", "`max` chose another element"),
        ("d.max(dim=0).values", "`max` chose another element"),
        ("torch.maximum(d, torch.ones(3)).sum()", "`maximum` chose another element"),
        ("(d * 2).abs().sum()", "`abs` has slope 0 at 0"),
        ("torch.relu(d - 0.5).sum()", "`relu` is flat there"),
        ("d.clamp(min=0.1).sum()", "`clamp` is flat there"),
        # the slope of the square is 0 there: nothing was left out, and nothing is said of it
        ("d.square().sum()", "inferred: 0 times an infinite gradient is NaN"),
    ],
)
def test_what_made_a_gradient_of_0_is_named_only_if_seen(
    use: str, words: str, programs: ForkServer, tmp_path: Path
) -> None:
    program = f"""
    import torch
    x = torch.tensor([0.0, 1.0, 4.0], requires_grad=True)
    d = x.sqrt()
    loss = {use}
    loss.backward()
    print(x.grad)
    """
    told = tell(programs, tmp_path, program)
    assert "the incoming gradient there is 0" in told.text
    assert words in told.text
    assert ("too late" in told.text) == ("afterwards" in words)


def test_the_zero_distance_of_a_kernel_is_no_cancellation(
    programs: ForkServer, tmp_path: Path
) -> None:
    """exp(-0) is 1: that 0 says nothing about a matrix without a jitter."""
    program = """
    import torch
    x = torch.linspace(0, 1, 12).unsqueeze(1)
    d2 = (x.unsqueeze(1) - x.unsqueeze(0)).pow(2).sum(-1)
    print(torch.linalg.cholesky(torch.exp(-0.5 * d2)))
    """
    told = tell(programs, tmp_path, program)
    assert told.first["mechanism"] == "singular_matrix"
    assert not told.causes


def test_a_value_just_beyond_its_bound_is_shown_beyond_it(
    programs: ForkServer, tmp_path: Path
) -> None:
    program = "import torch\ncos = torch.tensor([0.5, 1.00000012])\nprint(torch.acos(cos))"
    told = tell(programs, tmp_path, program)
    assert "`acos` is not defined at `cos` = 1.0000001" in told.headline
    program = "import torch\ncos = torch.tensor([0.5, 1.5])\nprint(torch.acos(cos))"
    assert tell(programs, tmp_path, program).headline.endswith("`cos` = 1.5")


LIKELIHOOD = """
import torch
x = torch.tensor([1.0, {far}], requires_grad=True)
likelihood = torch.exp(-x * x) * {factor}
loss = -torch.log(likelihood).mean()
loss.backward()
print(x.grad)
"""


def test_a_divisor_that_has_lost_its_digits_underflowed(
    programs: ForkServer, tmp_path: Path
) -> None:
    told = tell(programs, tmp_path, LIKELIHOOD.format(far=9.7, factor=1.0))
    assert told.first["mechanism"] == "overflow"
    assert "runs out of digits" in told.causes["underflow"]
    assert not any("down" in title for title in told.helps)
    assert "add logarithms" in told.helps[0]
    assert "ones_like" not in told.text


def test_a_quotient_too_large_for_its_dividend_did_not_underflow(
    programs: ForkServer, tmp_path: Path
) -> None:
    program = "import torch\nx = torch.tensor([3e38])\nprint(x / (x / 2e38 * 0.3))"
    told = tell(programs, tmp_path, program)
    assert told.first["mechanism"] == "overflow"
    assert "underflow" not in told.causes
    assert "look at that value where the data are prepared" in told.helps[0]


WORKERS = """
import torch
from torch.utils.data import DataLoader, Dataset

class Pictures(Dataset):
    def __len__(self):
        return 12
    def __getitem__(self, i):
        x = torch.arange(18.0).reshape(2, 3, 3) * (i != 7)
        return (x - x.mean()) / x.std()

net = torch.nn.Conv2d(2, 1, 3)
for x in DataLoader(Pictures(), batch_size=4, num_workers={workers}):
    last = net(x).sum().item()
    if last != last:
        break
print(last)
"""


def test_what_a_worker_did_is_seen_when_its_dataset_is_asked_again(
    programs: ForkServer, tmp_path: Path
) -> None:
    told = tell(programs, tmp_path, WORKERS.format(workers=2))
    assert told.first["mechanism"] == "division_by_zero"
    assert "a DataLoader worker made it" in told.text


def test_what_this_process_did_is_seen(programs: ForkServer, tmp_path: Path) -> None:
    told = tell(programs, tmp_path, WORKERS.format(workers=0))
    assert told.first["mechanism"] == "division_by_zero"
    assert "worker" not in told.text


@pytest.mark.parametrize(
    ("shape", "place"), [("[6]", "first at [4]"), ("[2, 3]", "first in row 1, column 1")]
)
def test_only_a_table_has_rows_and_columns(
    shape: str, place: str, programs: ForkServer, tmp_path: Path
) -> None:
    program = f"""
    import numpy, torch
    x = numpy.ones({shape})
    x.flat[4] = numpy.nan
    print(torch.from_numpy(x).sum().item())
    """
    assert tell(programs, tmp_path, program).causes["bad_data"].endswith(place)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("h = torch.zeros(3).half()\nprint(1 / (h + 1e-8))", "use a larger eps: in float16"),
        ("print(torch.log(torch.zeros(3).half().clamp(min=1e-8)))", "use a larger eps: in float16"),
        ("m = torch.zeros(3) > 1\nprint(torch.zeros(3).sum() / m.sum())", "the divisor counts"),
        ("m = torch.zeros(3) > 1\nprint(1 / m.float().sum())", "the divisor counts"),
        ("n = torch.bincount(torch.tensor([0, 2])).float()\nprint(1 / n)", "the divisor counts"),
        ("v = torch.zeros(3)\nprint(v / v.norm())", "the divisor is a norm"),
        ("v = torch.zeros(3)\nprint(v / v.pow(2).sum().sqrt())", "the divisor is a norm"),
        ("v = torch.ones(3)\nprint(v / v.std())", "the divisor measures spread"),
        ("v = torch.ones(3)\nd = v - v.mean()\nprint(d / d.pow(2).mean())", "the divisor measures"),
        ("v = torch.zeros(3)\nprint(v / v.sum())", "the divisor is a sum"),
        ("v = torch.ones(3)\nprint(v / (v - torch.tensor(1.0)))", "the divisor is a difference"),
        ("v = torch.ones(3)\nprint(v / (v.max() - v.min()))", "the divisor is the range"),
        ("n = torch.ones(3)\nprint((n * 0) / (n - 1))", "the divisor is a count minus one"),
        ("tau = 0.0\nprint(torch.ones(3) / tau)", "give `tau` a value above 0: program.py:2 sets"),
        ("v = torch.zeros(3)\nprint(1 / v.tanh())", "keep the divisor away from 0, for a count"),
    ],
)  # fmt: skip
def test_the_help_fits_what_the_divisor_is(
    program: str, words: str, programs: ForkServer, tmp_path: Path
) -> None:
    assert words in tell(programs, tmp_path, f"import torch\n{program}").helps[0]


def test_a_plain_number_that_divides_is_named(programs: ForkServer, tmp_path: Path) -> None:
    told = tell(programs, tmp_path, "import torch\ntau = 0.0\nprint(torch.ones(3) / tau)")
    assert told.headline.endswith("divided 1 by `tau`, which is 0")
    program = "import torch\ntau = torch.zeros(3)\nprint(2 / tau)"
    assert tell(programs, tmp_path, program).headline.endswith("by `tau`, which is 0")


def test_a_constant_column_is_no_cancellation(programs: ForkServer, tmp_path: Path) -> None:
    program = """
    import torch
    y = torch.full((6,), 5.0)
    d = y - y.mean()
    print(d / d.pow(2).sum().sqrt())
    """
    told = tell(programs, tmp_path, program)
    assert told.causes == {"constant_input": "line 4: all values equal their mean, 5"}


def test_one_value_that_equals_the_mean_is_no_constant(
    programs: ForkServer, tmp_path: Path
) -> None:
    program = "import torch\ny = torch.tensor([4.0, 5.0, 6.0])\nprint(1 / (y - y.mean()))"
    assert list(tell(programs, tmp_path, program).causes) == ["cancellation"]


def test_a_spread_of_one_value_speaks_of_the_last_batch(
    programs: ForkServer, tmp_path: Path
) -> None:
    program = """
    import torch
    from torch.utils.data import DataLoader
    for x in {batches}:
        print(x.std(0))
    """
    loader = "DataLoader(torch.rand(5, 3), batch_size=4)"
    told = tell(programs, tmp_path, program.format(batches=loader))
    assert "drop_last=True" in told.helps[0]
    assert "unbiased=False" in told.helps[1]
    told = tell(programs, tmp_path, program.format(batches="torch.rand(5, 3).split(4)"))
    assert "leave the scaling out there" in told.helps[0]
    assert "DataLoader" not in told.text
    told = tell(programs, tmp_path, "import torch\nx = torch.ones(0, 3)\nprint(x.mean(0))")
    assert not any("drop_last" in title for title in told.helps)


CLIPPED = """
import torch
w = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([w], lr=1e-3)
(w * 1e25).sum().backward()
{clip}
optimizer.step()
print(w)
"""


def test_a_program_that_clips_is_not_told_to_clip(programs: ForkServer, tmp_path: Path) -> None:
    told = tell(programs, tmp_path, CLIPPED.format(clip="torch.nn.utils.clip_grad_norm_([w], 5.0)"))
    assert "the norm that `clip_grad_norm_` takes overflowed" in told.headline
    assert "clip_grad_value_" in told.helps[0]


TARGETS = """
import torch
logits = torch.randn(3, 4)
target = torch.tensor({target})
print(torch.nn.functional.cross_entropy(logits, target{more}))
"""


def test_targets_that_are_all_ignored_are_told_as_that(
    programs: ForkServer, tmp_path: Path
) -> None:
    told = tell(programs, tmp_path, TARGETS.format(target="[-100] * 3", more=""))
    assert "had nothing to average: all 3 targets are -100, which it ignores" in told.headline
    assert "`(target != -100).any()`" in told.helps[0]
    weightless = TARGETS.format(target="[1, 1, 1]", more=", weight=torch.tensor([1.0, 0, 1, 1])")
    assert "nothing to average: no target counts" in tell(programs, tmp_path, weightless).headline


def test_nothing_is_said_to_lie_in_an_empty_bin(programs: ForkServer, tmp_path: Path) -> None:
    program = """
    import torch
    counts = torch.bincount(torch.tensor([0, 5, 5])).float()
    print(1 / counts)
    """
    assert "bincount 0 nothing was counted here" in tell(programs, tmp_path, program).text


def test_a_value_that_was_overwritten_is_the_one_its_reader_saw(
    programs: ForkServer, tmp_path: Path
) -> None:
    program = """
    import torch
    x = torch.full((2,), 3e20)
    x.mul_(0.5)
    x.mul_(x)
    print(x)
    """
    links = tell(programs, tmp_path, program).first["chain"]
    assert next(link["value"] for link in links if link["op"] == "mul") == pytest.approx(1.5e20)


@pytest.mark.parametrize(("factor", "ran_down"), [("0", False), ("1e-30", True)])
def test_a_product_ran_down_to_0_only_if_no_factor_was_0(
    programs: ForkServer, tmp_path: Path, factor: str, ran_down: bool
) -> None:
    program = f"""
    import torch
    small = torch.full((2,), 1e-30)
    print((small * {factor}).log())
    """
    assert ("add logarithms" in tell(programs, tmp_path, program).text) == ran_down


DROPPED = """
import torch
x = torch.tensor([4.0, {bad}], requires_grad=True)
loss = {formula}.sum()
loss.backward()
print(x.grad)
"""


@pytest.mark.parametrize(
    ("bad", "formula"),
    [
        ("-1.0", "torch.where(x > 0, torch.sqrt(x), 0.0)"),
        ("-1.0", "torch.sqrt(x).masked_fill(x < 0, 0.0)"),
        ("-1.0", "x.sqrt().nan_to_num(0.0)"),
        ("-1.0", "x.sqrt()[x > 0]"),
        ("200.0", "torch.where(x < 20, torch.exp(x), x)"),
    ],
)
def test_a_value_that_was_dropped_comes_back_with_its_slope(
    programs: ForkServer, tmp_path: Path, bad: str, formula: str
) -> None:
    told = tell(programs, tmp_path, DROPPED.format(bad=bad, formula=formula))
    assert "afterwards, which is too late" in told.text
    assert "where the result is not used" in told.helps[0]


def test_an_overflow_that_was_bounded_afterwards_was_not_selected(
    programs: ForkServer, tmp_path: Path
) -> None:
    told = tell(programs, tmp_path, DROPPED.format(bad="200.0", formula="x.exp().clamp(max=9.0)"))
    assert "too late" not in told.text
    assert "keep the exponent small" in told.helps[0]


def test_an_eps_of_0_is_no_missing_one(programs: ForkServer, tmp_path: Path) -> None:
    program = """
    import torch
    x = torch.zeros(2, 4, requires_grad=True)
    eps = {eps}
    y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True){added})
    y.sum().backward()
    """
    told = tell(programs, tmp_path, program.format(eps="0.0", added=" + eps"))
    assert "adds 0" in told.causes["missing_eps"]
    assert "nothing keeps" not in told.text
    assert "norm" not in told.helps[0]
    assert "eps" in told.helps[0]
    told = tell(programs, tmp_path, program.format(eps="0.0", added=""))
    assert told.causes["missing_eps"] == "nothing keeps the divisor away from 0"
    assert "mean of squares" in told.helps[0]


def test_a_lower_bound_of_0_is_named(programs: ForkServer, tmp_path: Path) -> None:
    program = """
    import torch
    x = torch.zeros(4, requires_grad=True)
    (x / x.abs().sum().clamp(min=0.0)).sum().backward()
    """
    told = tell(programs, tmp_path, program)
    assert told.causes["missing_eps"] == "line 4: a lower bound of 0 keeps nothing away from 0"


MATRIX = """
import torch
flat = torch.ones(3, 3, requires_grad=True)
result = {call}
result.sum().backward()
"""


@pytest.mark.parametrize(
    ("call", "what"),
    [
        ("torch.linalg.slogdet(flat * 1)[1]", "singular"),
        ("torch.linalg.inv(flat * 1)", "singular"),
        ("torch.linalg.cholesky(flat - 2 * torch.eye(3))", "not positive definite"),
    ],
)
def test_of_a_matrix_only_what_the_operation_asks_of_it_is_said(
    programs: ForkServer, tmp_path: Path, call: str, what: str
) -> None:
    told = tell(programs, tmp_path, MATRIX.format(call=call))
    assert told.headline.endswith(f"was given a 3x3 matrix that is {what}")
    assert not any("slogdet" in title for title in told.helps)


def test_a_norm_of_whynans_own_is_not_said_to_be_the_programs() -> None:
    rows = tuple(
        HistoryRow(step=i, loss=1.0, grad_max=g, lr=0.1)
        for i, g in enumerate([1.0, 1e2, 1e4, 1e8, float("inf")])
    )
    evidence = Evidence(
        sink="loss", subject="loss", step=5, origin=origin(), origin_kind="operation",
        around=Circumstances(history=rows),
    )  # fmt: skip
    (cause,) = causes_around(evidence, "overflow", None)
    assert "square" not in cause.evidence
    assert cause.evidence.endswith("1e+08 in 4 steps, then beyond what can be measured")


CENTRED = """
import torch
torch.manual_seed(0)
{own}
w = torch.nn.Parameter(torch.zeros(24))
direction = torch.randn(24)
optimizer = {optimizer}
for step in range(600):
    loss = (w * direction).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
OWN = """
class Own(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 1e-3})
        self.mean = self.square = 0.0
    @torch.no_grad()
    def step(self):
        (p,) = self.param_groups[0]["params"]
        self.mean = 0.9 * self.mean + 0.1 * p.grad
        self.square = 0.9 * self.square + 0.1 * p.grad ** 2
        p -= 1e-3 * p.grad / ((self.square - self.mean ** 2).sqrt() + 1e-8)
"""


def test_the_lines_of_torchs_optimizer_are_not_the_users(
    programs: ForkServer, tmp_path: Path
) -> None:
    optimizer = "torch.optim.RMSprop([w], lr=5e-5, alpha=0.9, centered=True)"
    told = tell(programs, tmp_path, CENTRED.format(own="", optimizer=optimizer))
    assert told.first["mechanism"] == "sqrt_negative"
    assert len(told.helps) == 1
    assert "`centered=False`" in told.helps[0]


def test_the_lines_of_an_optimizer_written_by_hand_are(
    programs: ForkServer, tmp_path: Path
) -> None:
    told = tell(programs, tmp_path, CENTRED.format(own=OWN, optimizer="Own([w])"))
    assert told.first["mechanism"] == "sqrt_negative"
    assert "average the squared deviations" in told.helps[0]
    assert "centered" not in told.text


def test_an_optimizers_divisor_of_0_asks_for_its_eps(programs: ForkServer, tmp_path: Path) -> None:
    program = """
    import torch
    w = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.{optimizer}
    (w * torch.tensor([0.0, 1.0])).sum().backward()
    optimizer.step()
    """
    for optimizer in ("Adam([w], eps=0.0)", "RMSprop([w], eps=0.0)"):
        told = tell(programs, tmp_path, program.format(optimizer=optimizer))
        assert [fix["kind"] for fix in told.first["fixes"]] == ["optimizer_eps"]


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("u = torch.tensor([0.5, 0.99979]).half().float()\nprint(torch.log(-torch.log(u)))", "a cast to float16 rounded 0.9998 to 1"),
        ("c = torch.tensor([0.5, 0.9999]).bfloat16().float()\nprint(torch.atanh(c))", "a cast to bfloat16 rounded 0.9999 to 1"),
        ("p = torch.tensor([9.0]).half().sigmoid()\nprint(torch.log(1 - p))", "`sigmoid` in float16 rounded 0.9999 to 1"),
        ("x = torch.tensor([1e-9]).half()\nprint(1 / x)", "a cast to float16 rounded 1e-09 to 0"),
    ],
)  # fmt: skip
def test_a_value_that_half_precision_rounded_is_low_precision(
    program: str, words: str, programs: ForkServer, tmp_path: Path
) -> None:
    assert words in tell(programs, tmp_path, f"import torch\n{program}").causes["low_precision"]


@pytest.mark.parametrize(
    "program",
    [
        "u = torch.tensor([0.5, 1.0]).half().float()\nprint(torch.log(-torch.log(u)))",
        "p = torch.tensor([90.0]).sigmoid()\nprint(torch.log(1 - p))",
        "u = torch.tensor([0.5, 0.99979]).half().float() * 0\nprint(torch.log(u))",
    ],
)
def test_a_value_that_was_0_or_1_before_was_not_rounded(
    program: str, programs: ForkServer, tmp_path: Path
) -> None:
    assert "low_precision" not in tell(programs, tmp_path, f"import torch\n{program}").causes


@pytest.mark.parametrize(
    ("program", "words", "kinds"),
    [
        # the logarithm of exponentials: summed, multiplied, and of something else
        ("x = torch.full((2, 3), -200.0)\nprint(torch.log((0.3 * x.exp()).sum(1)))", "logsumexp(exponent + log_weight", ["logsumexp"]),
        ("x = torch.full((2,), -200.0)\nprint(torch.log(0.3 * x.exp()))", "that of `exp(x)` is x", ["log_space"]),
        ("x = torch.zeros(2, 3)\nprint(torch.log((0.3 * x).sum(1)))", "keep the argument above 0", ["clamp_argument"]),
        # a divisor made of them
        ("k = torch.full((3, 3), -200.0).exp()\nprint(1 / (k @ torch.ones(3)))", "exponentials that rounded to 0", ["log_space"]),
        ("k = torch.zeros(3, 3)\nprint(1 / (k @ torch.ones(3)))", "keep the divisor away from 0", ["clamp_denominator", "add_eps"]),
        # a root of something that is no sum of squares
        ("c = torch.ones(2, requires_grad=True)\n(1 - c ** 2).sqrt().sum().backward()\nprint(c.grad)", "add eps inside the root", ["eps_inside", "double_where"]),
        ("c = torch.zeros(2, requires_grad=True)\n(c ** 2).sum().sqrt().backward()\nprint(c.grad)", "vector_norm", ["vector_norm", "eps_inside", "double_where"]),
        # differences of several kinds
        ("m, q = torch.tensor(3000.0), torch.tensor(8999999.0)\nprint((q - m ** 2).sqrt())", "average the squared deviations", ["stable_form", "clamp_argument"]),
        ("x = torch.tensor([-1.0])\nprint(x.sqrt())", "clamp", ["clamp_argument"]),
        # domains
        ("x = torch.tensor([-0.5])\nprint(x ** 0.3)", "keep the base of a fractional power above 0", ["clamp_argument"]),
        ("x = torch.tensor([1.5])\nprint(x.acos())", "to [-1, 1], staying", ["clamp_argument"]),
    ],
)  # fmt: skip
def test_the_help_fits_what_was_computed(
    program: str, words: str, kinds: list[str], programs: ForkServer, tmp_path: Path
) -> None:
    told = tell(programs, tmp_path, f"import torch\n{program}")
    assert words in told.helps[0]
    assert [fix["kind"] for fix in told.first["fixes"]] == kinds


@pytest.mark.parametrize(
    ("difference", "words"),
    [
        ("(x * x).sum(1)[:, None] + (x * x).sum(1)[None] - 2 * x @ x.t()", "`torch.cdist`"),
        ("x.square().mean(1) - x.mean(1).square() - 0.1", "`x.var(correction=0)`"),
        ("torch.tensor(8999999.0) - torch.tensor(3000.0) ** 2", "squared deviations"),
    ],
)
def test_the_form_without_a_subtraction_is_that_of_the_difference(
    difference: str, words: str, programs: ForkServer, tmp_path: Path
) -> None:
    program = f"""
    import torch
    torch.manual_seed(0)
    x = 3000 + 0.01 * torch.randn(20, 6)
    print(({difference}).sqrt())
    """
    assert words in tell(programs, tmp_path, program).helps[0]


MASKED = """
import torch
from torch import nn
x, hidden = torch.randn(2, 3, 4), torch.tensor([[False, False, True], [True, True, True]])
{attend}
print(out)
"""


def test_who_gave_a_mask_of_booleans_wrote_no_infinity(
    programs: ForkServer, tmp_path: Path
) -> None:
    attend = (
        "out = nn.MultiheadAttention(4, 2, batch_first=True)(x, x, x, key_padding_mask=hidden)[0]"
    )
    told = tell(programs, tmp_path, MASKED.format(attend=attend))
    assert [fix["kind"] for fix in told.first["fixes"]] == ["guard_mask"]
    assert "give every row of the mask at least one visible key" in told.helps[0]
    attend = (
        "scores = x @ x.mT\nout = scores.masked_fill(hidden[:, None], float('-inf')).softmax(-1)"
    )
    told = tell(programs, tmp_path, MASKED.format(attend=attend))
    assert "finite_fill" in [fix["kind"] for fix in told.first["fixes"]]


def test_memory_that_nothing_wrote_is_named_with_its_line(
    programs: ForkServer, tmp_path: Path
) -> None:
    program = """
    import torch
    torch.use_deterministic_algorithms(True)
    x = torch.ones(3)
    bias = torch.empty(3)
    print(x + bias)
    """
    told = tell(programs, tmp_path, program)
    assert "`+` read `bias`, memory that was never written" in told.headline
    assert "line 5: `torch.empty(3)` allocated it; nothing was written there since" in told.text

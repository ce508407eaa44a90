"""Harm is seen where it matters, and only there."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import whynan
from tests.record.test_tracer import anomalies_of, expect

LinAlgError: type[Exception] = vars(torch.linalg)["LinAlgError"]


def test_a_gradient_that_is_repaired_before_the_step_is_no_harm() -> None:
    def program() -> None:
        w = nn.Parameter(torch.zeros(2))
        optimizer = torch.optim.SGD([w], lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            w.abs().sqrt().sum().backward()
            assert w.grad is not None
            w.grad.nan_to_num_(0.0, 0.0, 0.0)
            optimizer.step()

    assert anomalies_of(program) == ()


def test_the_same_gradient_is_harm_when_it_is_stepped_with() -> None:
    def program() -> None:
        w = nn.Parameter(torch.zeros(2))
        optimizer = torch.optim.SGD([w], lr=0.1)
        w.abs().sqrt().sum().backward()
        optimizer.step()

    found = anomalies_of(program)[0]
    assert (found.evidence.sink, found.origin.phase) == ("gradient", "backward")


def test_optimizer_state_that_overflows_is_harm_although_the_weights_are_finite() -> None:
    def program() -> nn.Parameter:
        w = nn.Parameter(torch.ones(2))
        optimizer = torch.optim.Adam([w], lr=0.1)
        (w * 1e25).sum().backward()
        optimizer.step()
        assert bool(torch.isfinite(w).all())
        return w

    found = anomalies_of(program)[0]
    assert found.evidence.subject == "Adam's exp_avg_sq of param_groups[0][0]"
    assert found.evidence.hyper["lr"] == 0.1


def test_a_loss_scale_that_collapses_is_harm_and_a_warm_up_is_not() -> None:
    def train(factor: float, steps: int) -> None:
        w = nn.Parameter(torch.ones(2))
        optimizer = torch.optim.SGD([w], lr=1e-3)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)
        for _ in range(steps):
            optimizer.zero_grad()
            loss = (w.half() * factor).float().sum()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

    assert anomalies_of(lambda: train(100.0, 20)) == ()
    found = anomalies_of(lambda: train(60000.0 * 30, 14))[0]
    assert found.evidence.sink in ("gradient", "loss")


def test_clipping_by_an_infinite_norm_is_harm() -> None:
    def program() -> None:
        w = nn.Parameter(torch.ones(3))
        optimizer = torch.optim.SGD([w], lr=1.0)
        (w * 1e20).sum().backward()
        nn.utils.clip_grad_norm_([w], 1.0)
        optimizer.step()

    found = anomalies_of(program)[0]
    assert found.evidence.effect == "every gradient became 0"
    assert (found.finding.mechanism, found.origin.phase) == ("overflow", "optimizer")


def test_clipping_by_a_large_finite_norm_is_not() -> None:
    def program() -> None:
        w = nn.Parameter(torch.ones(3))
        optimizer = torch.optim.SGD([w], lr=1.0)
        (w * 1e15).sum().backward()
        nn.utils.clip_grad_norm_([w], 1.0)
        optimizer.step()

    assert anomalies_of(program) == ()


@pytest.mark.parametrize("read", ["item", "tolist", "numpy", "print", "format", "save", "float"])
def test_values_read_out(read: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def program() -> object:
        bad = torch.zeros(1).log()
        readers: dict[str, Callable[[], object]] = {
            "item": bad.item,
            "tolist": bad.tolist,
            "numpy": bad.numpy,
            "print": lambda: print(bad),
            "format": lambda: f"{bad[0]:.3f}",
            "save": lambda: torch.save({"weights": bad}, tmp_path / "w.pt"),
            "float": lambda: float(bad),
        }
        return readers[read]()

    found = anomalies_of(program)
    assert [a.evidence.sink for a in found] == ["observed"]


def test_a_deep_copy_keeps_its_history() -> None:
    def program() -> object:
        x = torch.zeros(3)
        bad = x.log()
        return copy.deepcopy(bad).tolist()

    found = anomalies_of(program)[0]
    assert found.origin.site is not None
    assert found.origin.site.source == "bad = x.log()"


def test_a_nan_that_was_pickled_comes_in_as_data() -> None:
    stored = pickle.dumps(torch.tensor([1.0, math.nan]))

    def program() -> object:
        return pickle.loads(stored).sum().item()

    found = anomalies_of(program)[0]
    assert (found.finding.mechanism, found.origin.phase) == ("nonfinite_data", "data")


def test_a_temporary_that_came_in_bad_is_described_steps_later() -> None:
    def program() -> None:
        # The float64 tensor is gone when the last step meets the class without a weight.
        data = torch.tensor([0.5, 2.0, math.inf], dtype=torch.float64).numpy()
        weight = torch.tensor(data).float()
        net = nn.Linear(2, 3)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for label in (0, 1, 0, 2):
            loss = nn.functional.cross_entropy(
                net(torch.ones(1, 2)), torch.tensor([label]), weight=weight
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    (found,) = anomalies_of(program)
    stats = found.origin.inputs[0].stats
    assert stats is not None
    assert (stats.count, stats.posinf) == (3, 1)
    assert found.origin.inputs[0].first == (2,)


def test_a_vector_times_a_matrix_is_one_line_of_the_path() -> None:
    def program() -> None:
        row = torch.tensor([1.0, 2.0]) @ torch.tensor([[3.0, 5.0], [7.0, 11.0]])
        print(row * 1e37 * 1e3)

    (found,) = anomalies_of(program)
    (operand,) = [o for o in found.origin.inputs if o.value is not None]
    names = {op.name: op.value for op in operand.upstream}
    assert "squeeze" not in names
    assert 17.0 in names.values()


@pytest.mark.parametrize(("zeros", "mechanism"), [(True, "division_by_zero"), (False, "overflow")])
def test_weight_norm_of_a_zero_direction_is_a_division_by_zero(zeros: bool, mechanism: str) -> None:
    def program() -> None:
        layer = nn.Linear(3, 2)
        with torch.no_grad():
            layer.weight[1] = 0.0 if zeros else 1e38
        layer = nn.utils.parametrizations.weight_norm(layer)
        print(layer(torch.full((1, 3), 10.0)))

    (found,) = anomalies_of(program)
    assert found.finding.mechanism == mechanism


def test_a_parameter_that_was_bad_before_is_named() -> None:
    last = nn.Linear(2, 1)
    model = nn.Sequential(nn.Linear(2, 2), last)
    with torch.no_grad():
        last.weight[0, 1] = math.nan

    found = anomalies_of(lambda: model(torch.ones(1, 2)).sum().backward())[0]
    assert found.finding.mechanism == "nonfinite_data"
    assert "parameter 1.weight" in found.finding.headline


def test_the_programs_own_modes_do_not_see_whynan() -> None:
    class Count(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[str] = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.seen.append(str(func))
            return func(*args, **(kwargs or {}))

    def program() -> list[str]:
        w = torch.ones(2, requires_grad=True)
        counter = Count()
        with counter:
            (w * 2).sum().backward()
        return counter.seen

    plain = program()
    with whynan.trace():
        traced = program()
    assert traced == plain


def test_fake_tensors_pass() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    def program() -> None:
        with FakeTensorMode():
            assert (torch.empty(2, 2) @ torch.empty(2, 3)).shape == (2, 3)

    assert anomalies_of(program) == ()


def test_a_caught_linalg_error_is_no_harm_and_an_uncaught_one_is() -> None:
    singular = torch.ones(3, 3)

    def guarded() -> None:
        try:
            torch.linalg.cholesky(singular - 2 * torch.eye(3))
        except LinAlgError:
            torch.linalg.cholesky(singular + torch.eye(3))

    assert anomalies_of(guarded) == ()
    with pytest.raises(LinAlgError), whynan.trace() as trace:
        torch.linalg.cholesky(singular - 2 * torch.eye(3))
    found = whynan.diagnose(trace).anomalies[0]
    assert (found.finding.mechanism, found.evidence.sink) == ("singular_matrix", "exception")


def test_a_check_for_finiteness_that_raises_leads_to_the_origin() -> None:
    def program() -> None:
        loss = torch.tensor([0.5, 0.0]).log().mean()
        if not torch.isfinite(loss):
            raise FloatingPointError("the loss is not finite")

    with pytest.raises(FloatingPointError), whynan.trace() as trace:
        program()
    found = whynan.diagnose(trace).anomalies[0]
    assert (found.finding.mechanism, found.evidence.sink) == ("log_nonpositive", "exception")


@pytest.mark.parametrize("read", ["tolist", "item", "print"])
def test_a_wrong_value_that_is_read_out_is_harm(
    read: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def program() -> None:
        x = torch.tensor([[3e20, 4e20]])
        unit = x * torch.rsqrt((x * x).sum(-1, keepdim=True))
        if read == "tolist":
            unit.tolist()
        elif read == "item":
            unit.sum().item()
        else:
            print(unit)

    found = anomalies_of(program)[0]
    assert (found.finding.mechanism, found.evidence.sink) == ("overflow", "observed")
    assert found.evidence.effect is not None
    assert "where float64 gives" in found.evidence.effect


def test_numbers_and_tensors_keep_their_names_apart() -> None:
    scale = 1e30

    def product() -> object:
        x = torch.tensor([3e9])
        return (scale * x).tolist()

    def quotient() -> object:
        w = torch.zeros(2)
        return (40 / w).tolist()

    assert "scale" not in " ".join(anomalies_of(product)[0].finding.observed)
    assert "divided by `w`, which is 0" in anomalies_of(quotient)[0].finding.headline


def test_the_first_index_is_the_first() -> None:
    x = torch.ones(4, 3)

    def program() -> object:
        y = x / (x - x[:1]).mul(torch.tensor([1.0, 0.0, 1.0])).add(torch.tensor([1.0, 0.0, 1.0]))
        return y[2:].sum().item()

    found = anomalies_of(program)[0]
    assert found.origin.outputs[0].first == (0, 1)
    assert "first at [0, 1]" in found.finding.label


def test_torch_is_not_heard_twice() -> None:
    def program() -> object:
        with pytest.warns(UserWarning, match="degrees of freedom") as heard:
            spread = torch.ones(1).std()
        assert len(heard) == 1
        return spread.item()

    assert anomalies_of(program)[0].finding.mechanism == "empty_reduction"


def train_with(
    clean: Callable[[nn.Parameter], None], loss_of: Callable[[nn.Parameter], torch.Tensor]
) -> None:
    w = nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([w], lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        loss_of(w).backward()
        clean(w)
        optimizer.step()


def test_a_bad_loss_whose_gradients_are_cleaned_is_no_harm() -> None:
    def clean(w: nn.Parameter) -> None:
        assert w.grad is not None
        w.grad.nan_to_num_(0.0, 0.0, 0.0)

    assert anomalies_of(lambda: train_with(clean, lambda w: (w / w).sum())) == ()
    found = anomalies_of(lambda: train_with(lambda w: None, lambda w: (w / w).sum()))
    assert found[0].evidence.sink == "loss"


@pytest.mark.parametrize("weight", [1.0, 512.0])
def test_a_bad_loss_with_finite_gradients_is_no_harm(weight: float) -> None:
    """The loss is infinite beside them, and the update is not: nothing is spoilt."""
    infinite = torch.zeros(1)

    def loss_of(w: nn.Parameter) -> torch.Tensor:
        return weight * (w.sum() - infinite.log().sum())

    assert anomalies_of(lambda: train_with(lambda w: None, loss_of)) == ()


@pytest.mark.parametrize(
    "test", ["value != value", "not value < 1e9", "is_broken(value)", "math.isnan(value)"]
)
def test_a_value_that_is_only_tested_is_no_harm(test: str, tmp_path: Path) -> None:
    source = f"""
import math
import torch

def is_broken(v):
    return v != v

def program():
    value = torch.zeros(1).log().sub(torch.zeros(1).log()).item()
    if {test}:
        return None
    return value
"""
    path = tmp_path / "program.py"
    path.write_text(source)
    space: dict[str, Callable[[], object]] = {}
    exec(compile(source, str(path), "exec"), space)
    assert anomalies_of(space["program"]) == ()


@pytest.mark.parametrize(
    ("branch", "is_harm"),
    [
        ("if not math.isfinite(loss.item()): print('bad loss', loss.item()); continue", True),
        ("if not torch.isfinite(loss): print(f'bad loss {loss}'); continue", True),
        ("if loss != loss: print('bad', loss); continue", True),
        ("ok = torch.isfinite(loss)\n        if not ok: print('{}'.format(loss)); continue", True),
        ("seen.append(loss.item())\n        if math.isnan(seen[-1]): continue", False),
        (
            "v = loss.numpy()\n        if math.isnan(float(v)): seen.append(float(v)); continue",
            False,
        ),
        ("seen.append(numpy.nansum(loss.numpy()))", False),
        ("if loss.isfinite(): seen.append(1)\n        else: print(loss)", True),
        ("if torch.isnan(loss): print('stopping', loss.item()); break", True),
        ("print(loss.item())", False),
        ("if step % 2: print(loss.item())", True),
        ("if torch.isfinite(other): print(loss.item()); continue", False),
    ],
)
def test_a_printed_bad_value_is_harm_unless_its_line_prints_a_finite_one_afterwards(
    branch: str, is_harm: bool, tmp_path: Path
) -> None:
    source = f"""
import math
import numpy
import torch

def program():
    seen = []
    other = torch.ones(1).sum()
    for step in range(3):
        loss = torch.tensor(float(step != 1)).log().exp().log()
        loss = loss - loss if step == 1 else loss
        {branch}
"""
    path = tmp_path / "program.py"
    path.write_text(source)
    space: dict[str, Callable[[], object]] = {}
    exec(compile(source, str(path), "exec"), space)
    assert bool(anomalies_of(space["program"])) == is_harm


def test_a_line_that_prints_nothing_but_a_bad_value_has_the_last_word(tmp_path: Path) -> None:
    source = """
import torch

def one_step(x):
    loss = (x / x).sum()
    if not torch.isfinite(loss):
        print(f"left out: {loss.item()}")
        return None
    return loss

def program():
    for x in (torch.ones(2), torch.zeros(2), torch.ones(2)):
        one_step(x)
"""
    path = tmp_path / "program.py"
    path.write_text(source)
    space: dict[str, Callable[[], object]] = {}
    exec(compile(source, str(path), "exec"), space)
    assert [a.evidence.sink for a in anomalies_of(space["program"])] == ["observed"]


def test_minus_infinity_in_an_output_is_meant_and_plus_infinity_is_not() -> None:
    class Scores(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.log()

    class Likelihood(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.exp(x)

    with torch.no_grad():
        assert anomalies_of(lambda: Scores()(torch.tensor([0.0, 1.0]))) == ()
        found = anomalies_of(lambda: Likelihood()(torch.tensor([100.0, 1.0])))
    assert found[0].evidence.sink == "output"


def test_a_gradient_made_in_a_closure_is_of_the_backward_pass() -> None:
    def program() -> None:
        w = nn.Parameter(torch.zeros(2))
        optimizer = torch.optim.SGD([w], lr=0.1)

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = w.abs().sqrt().sum()
            loss.backward()
            return loss

        optimizer.step(closure)

    assert anomalies_of(program)[0].origin.phase == "backward"


def sample_after(turn: Callable[[torch.Tensor], torch.Tensor]) -> int | None:
    """The sample that is named when row 1 of the batch is bad, after its rows were turned."""

    def program() -> None:
        model = nn.Linear(2, 2)
        with torch.no_grad():
            nn.init.eye_(model.weight)
            model.bias.zero_()
        out = model(torch.tensor([[1.0, 1.0], [0.0, 0.0], [2.0, 2.0]]))
        turn(out).log()[:3].sum().backward()

    sample = anomalies_of(program)[0].evidence.around.sample
    return sample.index if sample else None


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1]])
def test_a_sample_is_named_after_its_rows_were_sorted(order: list[int]) -> None:
    assert sample_after(lambda out: out[torch.tensor(order)]) == 1


@pytest.mark.parametrize("back", [[1, 2, 0], [2, 0, 1], [2, 2, 1]])
def test_a_sample_is_named_wherever_its_rows_were_put(back: list[int]) -> None:
    def turn(out: torch.Tensor) -> torch.Tensor:
        sorted_rows = out.index_select(0, torch.tensor([2, 0, 1])) * 3
        return sorted_rows.index_select(0, torch.tensor(back))

    assert sample_after(turn) == 1


def test_no_sample_is_named_where_rows_were_added_up() -> None:
    assert sample_after(lambda out: (out - out.flip(0)).cumsum(0)[1:] * 1) is None


def by_hand(skips: bool) -> None:
    w = torch.ones(2, requires_grad=True)
    for step in range(4):
        loss = (w * (1e30 if step == 1 else 1.0)).pow(2).sum()
        loss.backward()
        assert w.grad is not None
        with torch.no_grad():
            if not skips or loss.isfinite():
                w -= 0.1 * w.grad
            w.grad.zero_()


def test_an_update_by_hand_with_a_bad_loss_is_harm_and_one_left_out_is_not() -> None:
    assert anomalies_of(lambda: by_hand(skips=True)) == ()
    found = anomalies_of(lambda: by_hand(skips=False))[0]
    assert (found.evidence.sink, found.finding.mechanism) == ("loss", "overflow")


def test_an_infinite_learning_rate_is_what_spoilt_a_parameter_without_gradient() -> None:
    def program() -> None:
        w = nn.Parameter(torch.zeros(2))
        optimizer = torch.optim.SGD([w], lr=0.1)
        optimizer.param_groups[0]["lr"] = math.inf
        (w * 0.0).sum().backward()
        optimizer.step()

    found = anomalies_of(program)[0]
    assert (found.finding.mechanism, found.origin.phase) == ("nonfinite_data", "optimizer")
    assert "ran with lr = inf" in found.finding.headline


def test_a_variance_that_a_cast_made_infinite_is_harm_where_it_flattens_the_output() -> None:
    def program() -> object:
        norm = torch.nn.BatchNorm1d(3).eval()
        norm.get_buffer("running_var").fill_(1e6)
        norm.half()
        with torch.no_grad():
            return norm(torch.randn(5, 3).mul(1000).half()).tolist()

    expect(program, "norm.half()", "overflow", "init")


def test_a_single_number_that_a_traced_block_leaves_behind_is_its_result() -> None:
    best, before = torch.tensor(float("inf")), torch.tensor(float("nan"))
    with whynan.trace() as recording:
        loss = torch.log(torch.zeros(2)).sum()
        table = torch.log(torch.zeros(3))  # several numbers: a mask, perhaps
        kept = torch.tensor(float("inf"))
    (found,) = whynan.diagnose(recording).anomalies
    assert found.finding.headline.startswith("the result `loss` is -inf because `log`")
    del loss
    with whynan.trace() as recording:
        table = torch.log(torch.zeros(3))
        kept = torch.tensor(float("inf"))
        right = torch.minimum(kept, torch.ones(()))
        marked = torch.where(torch.tensor([True, False]), 1.0, before)  # a marker from outside
    assert whynan.diagnose(recording).anomalies == ()
    del best, before, table, kept, right, marked

"""`whynan.check` counts right, says what is wrong, and works on whatever holds numbers."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections import deque, namedtuple
from typing import Any

import array_api_strict
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import whynan
from whynan.checking.numpy_blocks import BLOCK, float8
from whynan.checking.torch_blocks import on_device, tally_tensor

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import jax.numpy as jnp


def only_item(x: Any, **options: Any) -> Any:
    (item,) = whynan.check(x, **options).items
    return item


def kinds(x: Any, **options: Any) -> set[str]:
    return {t.kind for t in only_item(x, **options).troubles}


BAD = np.array([[1.0, np.nan, 0.0], [-np.inf, -2.0, np.inf]], np.float32)
MAKERS = {
    "numpy": np.asarray,
    "torch": torch.from_numpy,
    "torch transposed": lambda a: torch.from_numpy(a.T.copy()).T,
    "numpy fortran": np.asfortranarray,
    "jax": jnp.asarray,
    "array-api-strict": array_api_strict.asarray,
    "list": lambda a: a.tolist(),
}


@pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS)
def test_every_library_gives_the_same_numbers(maker: Any) -> None:
    item = only_item(maker(BAD), name="x")
    stats = item.summary.stats
    assert (stats.nan, stats.posinf, stats.neginf, stats.zeros, stats.negatives) == (1, 1, 1, 1, 1)
    assert (stats.min, stats.max, stats.shape) == (-2.0, 1.0, (2, 3))
    assert item.summary.first_bad == (0, 1)
    assert item.summary.mean == pytest.approx(-1 / 3)
    assert item.summary.std == pytest.approx(np.std([1, 0, -2]))
    assert "1 NaN (first at [0, 1])" in str(item)


FLOATS = hnp.arrays(
    st.sampled_from([np.float16, np.float32, np.float64]),
    hnp.array_shapes(max_dims=3, max_side=6),
    elements={"allow_subnormal": False},
)


@given(FLOATS)
@settings(max_examples=200, deadline=None)
def test_counts_and_range_agree_with_numpy(x: np.ndarray) -> None:
    summary = only_item(x).summary
    stats = summary.stats
    assert stats.nan == np.isnan(x).sum()
    assert stats.posinf == np.isposinf(x).sum()
    assert stats.neginf == np.isneginf(x).sum()
    assert stats.zeros == (x == 0).sum()
    finite = x[np.isfinite(x)].astype(np.longdouble)
    assert (stats.min is None) == (finite.size == 0)
    if finite.size:
        assert (stats.min, stats.max) == (finite.min(), finite.max())
        scale = float(np.abs(finite).max()) or 1.0
        assert summary.mean == pytest.approx(float(finite.mean()), abs=1e-6 * scale)
        wanted = float(np.std(finite / scale)) * scale
        assert summary.std == pytest.approx(wanted, rel=2e-3, abs=1e-6 * scale)
    if stats.nonfinite:
        assert summary.first_bad is not None
        assert not np.isfinite(x[summary.first_bad])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_path_for_other_devices_agrees_with_the_one_for_the_cpu(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.randn(300, 7).to(dtype)
    for poison in (None, math.nan, math.inf, -math.inf):
        if poison is not None:
            x[11, 3] = poison
        x[5, 5] = 0
        here, there = tally_tensor(x), on_device(x)
        assert there.mean == pytest.approx(here.mean, rel=1e-3, abs=1e-6)
        assert there.std == pytest.approx(here.std, rel=1e-3)
        for field in ("seen", "finite", "min", "max", "nan", "posinf", "neginf", "zeros",
                      "subnormals", "negatives", "first_bad", "far"):  # fmt: skip
            assert getattr(here, field) == getattr(there, field), field


def test_bad_values_far_into_a_large_array_are_found_at_their_index() -> None:
    x = np.ones((3, BLOCK), np.float32)
    x[1, 17], x[2, 5] = np.inf, np.nan
    item = only_item(x)
    assert item.summary.first_bad == (2, 5)  # a NaN says more than an infinity
    assert item.summary.stats.posinf == 1


def test_spread_survives_a_large_mean() -> None:
    x = 1e8 + np.tile([0.0, 16.0], 1000)
    assert only_item(x).summary.std == pytest.approx(8.0)
    assert only_item(x.astype(np.float32)).summary.std == pytest.approx(8.0)


def test_float64_near_its_limit_has_a_mean_and_no_warning() -> None:
    summary = only_item(np.full(3 * BLOCK, 1.5e308)).summary
    assert summary.mean == pytest.approx(1.5e308)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"])  # fmt: skip
def test_float8_bits_are_read_as_torch_reads_them(name: str) -> None:
    bits = torch.arange(256, dtype=torch.uint8)
    wanted = bits.view(getattr(torch, name)).to(torch.float32)
    ours = torch.tensor([float8(int(b), name) for b in bits])
    assert torch.equal(ours.nan_to_num(1e9), wanted.nan_to_num(1e9))
    assert only_item(bits.view(getattr(torch, name))).summary.stats.nan == int(wanted.isnan().sum())


def test_odd_layouts_hold_values_too() -> None:
    x = torch.tensor([[0.0, math.nan], [0.0, 0.0]])
    assert "nan" in kinds(x.to_sparse())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls its own CSR layout a beta
        rows = x.to_sparse_csr()
        whole = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
    assert "nan" in kinds(rows)
    assert "nan" in kinds(torch.complex(x, x).conj())
    assert whynan.check(torch.empty(0))
    assert whynan.check(torch.empty(3, device="meta"))
    assert whynan.check(whole)
    assert whynan.check(np.ma.masked_invalid([1.0, np.nan]))
    assert only_item(torch.tensor([1 + 1j, complex(1, math.nan)])).summary.first_bad == (1,)


def test_numbers_in_odd_holders_are_found() -> None:
    fields = np.array([(1.0, (2.0, math.nan)), (1.0, (2.0, 3.0))], [("a", "f4"), ("b", [("c", "f8"), ("d", ">f2")])])  # fmt: skip
    assert [(i.name, i.summary.first_bad) for i in whynan.check(fields).bad] == [("b.d", (0,))]
    objects = np.array([1.0, None, math.inf], dtype=object)
    (item,) = whynan.check(objects).bad
    assert (item.summary.stats.nan, item.summary.stats.posinf) == (1, 1)
    mixed = {
        i: np.array(["word", torch.tensor([float(i), math.nan])], dtype=object) for i in range(9)
    }
    assert len(whynan.check(mixed).bad) == 9
    ragged = torch.nested.nested_tensor(
        [torch.ones(2), torch.tensor([math.nan])], layout=torch.jagged
    )
    assert [i.name for i in whynan.check(ragged).bad] == ["[1]"]
    for held in (deque([1.0, math.nan]), {"a": math.nan}.values(), {1.0, math.nan}):
        assert not whynan.check(held)
    for bad in (fields, objects, ragged, np.array([1, math.inf], ">f2")):
        with pytest.raises(AssertionError, match=r"NaN|inf"):
            whynan.assert_finite(bad)


Pair = namedtuple("Pair", "left right")


@dataclasses.dataclass
class Batch:
    inputs: torch.Tensor
    labels: list[int]
    note: str = "ignored"


def test_paths_lead_to_the_bad_array_in_a_container() -> None:
    nan = torch.tensor([math.nan])
    shared = {"weight": nan}
    shared["self"] = shared  # type: ignore[assignment] # a cycle
    tree = {"batch": Batch(nan, [1, 2]), "pair": Pair(1.0, nan + 1), "deep": [[shared]], "x": None}
    names = [item.name for item in whynan.check(tree).bad]
    assert names == ["batch.inputs", "pair.right"]  # `weight` is the same tensor as `inputs`
    assert next(i.name for i in whynan.check(tree, name="step").bad) == "step.batch.inputs"


def test_a_module_is_checked_by_its_state() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    assert whynan.check(model)
    with torch.no_grad():
        model.get_buffer("1.running_var")[0] = math.inf
    (item,) = whynan.check(model).bad
    assert item.name == "1.running_var"
    with pytest.raises(AssertionError, match=r"1 of 7 arrays are bad\n1.running_var: 2 float32"):
        whynan.check(model, raises=True)


def test_what_holds_no_numbers_is_refused() -> None:
    with pytest.raises(TypeError, match="no array, number or container of them in a str"):
        whynan.check("text")
    assert str(whynan.check({})) == "no arrays"
    with pytest.raises(ValueError, match="unknown kind 'nans'; known: nan, inf"):
        whynan.check(1.0, only=("nans",))


def test_remarks_are_made_when_they_matter_and_not_otherwise() -> None:
    torch.manual_seed(0)
    x = torch.randn(10_000)
    assert kinds(x) == set()
    assert kinds(x.half() * 3000) == {"limit"}
    assert kinds(torch.full((9,), 2.0)) == {"constant"}
    assert kinds(torch.zeros(9)) == {"constant"}
    assert kinds(torch.cat([x, torch.tensor([1e4])])) == {"outlier"}
    assert kinds(torch.cat([x, torch.tensor([1e-40, 0.0])])) == {"zero", "subnormal"}
    assert whynan.check(torch.cat([x, torch.tensor([1e4])]))  # a remark is no fault
    assert kinds(x.half() * 3000, headroom=1.0) == set()
    assert kinds(torch.cat([x, torch.tensor([9.0])]), outlier=8.0) == {"outlier"}


def test_only_names_what_is_wrong() -> None:
    x = torch.tensor([0.0, -1.0, math.nan])
    assert {t.kind for t in only_item(x, only=("zero", "negative")).faults} == {"zero", "negative"}
    assert whynan.check(x, only=("inf",))
    assert not whynan.check(x, only=("nan", "inf"))


def test_probabilities() -> None:
    torch.manual_seed(0)
    p = torch.randn(64, 50_000).softmax(-1)
    assert whynan.check(p, probability=True)
    assert whynan.check(p.bfloat16(), probability=True)
    assert whynan.check(p.T, probability=True, dim=0)
    assert whynan.check(jnp.asarray(p[:4].numpy()), probability=True)
    assert whynan.check(array_api_strict.asarray(p[:4].numpy()), probability=True)
    assert not whynan.check(p.T, probability=True)
    negative = torch.tensor([[1.1, -0.1], [0.5, 0.5]])
    assert "1 negative, smallest -0.1" in str(whynan.check(negative, probability=True))
    zero = torch.tensor([[0.5, 0.5], [0.0, 0.0]])
    assert "1 of 2 rows do not sum to 1: row [1] gives 0" in str(
        whynan.check(zero, probability=True)
    )
    assert "sums to 2" in str(whynan.check([1.0, 1.0], probability=True))
    assert whynan.check([1.0, 1.0], probability=True, tolerance=1.5)
    assert not whynan.check([math.nan, 1.0], probability=True)


@given(
    hnp.arrays(np.float32, (2, 3), elements=st.floats(-0.5, 1.5, width=32)),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_what_passes_as_probabilities_is_accepted_by_categorical(
    p: np.ndarray, scaled: bool
) -> None:
    if scaled and p.sum() > 0:
        p = np.abs(p) / np.abs(p).sum(-1, keepdims=True).clip(1e-3)
    if whynan.check(p, probability=True, tolerance=5e-7):
        torch.distributions.Categorical(probs=torch.from_numpy(p), validate_args=True).sample()


def test_logits() -> None:
    x = torch.zeros(3, 4)
    x[0, 1:] = -math.inf
    assert whynan.check(x, logits=True)
    x[1] = -math.inf
    assert "1 of 3 rows are -inf throughout, first [1]" in str(whynan.check(x, logits=True))
    assert not whynan.check(torch.tensor([[0.0, math.inf]]), logits=True)
    assert not whynan.check(torch.tensor([[0.0, math.nan]]), logits=True)
    wide = whynan.check(torch.tensor([[0.0, -200.0]]), logits=True)
    assert wide
    assert "logits span 200: softmax rounds to 0 beyond 104" in str(wide)


def test_assert_finite_is_an_assertion_with_the_place_in_it() -> None:
    whynan.assert_finite({"a": torch.full((9,), 6e4, dtype=torch.float16), "b": [1, 2]})
    whynan.assert_finite(np.full(9, 3e38, np.float32))  # the sum overflows, no value does
    for bad in (math.nan, math.inf, -math.inf):
        for x in (torch.tensor([0.0, bad]), np.array([0.0, bad]), [0.0, bad]):
            with pytest.raises(whynan.CheckFailed, match=r"grad: 2 float.*first at \[1\]") as info:
                whynan.assert_finite({"grad": x})
            assert isinstance(info.value, AssertionError)
            assert info.value.check.bad


def test_assert_finite_is_silent_on_finite_values() -> None:
    whynan.assert_finite([torch.arange(3), {"x": np.ones(2)}, 1.5, "text", None])
    whynan.assert_finite(torch.nn.BatchNorm1d(3))
    whynan.assert_finite(torch.empty(0))


def test_assert_finite_calls_the_argument_what_the_source_calls_it() -> None:
    logits = torch.tensor([[1.0, 2.0], [math.nan, -1.0]])
    with pytest.raises(whynan.CheckFailed, match=r"^logits \* 2: .*1 NaN \(first at \[1, 0\]\)"):
        whynan.assert_finite(logits * 2)
    with pytest.raises(whynan.CheckFailed, match=r"^2 float64"):
        whynan.assert_finite([1.0, math.inf])


def test_of_a_model_gradients_count_too() -> None:
    model = torch.nn.Linear(2, 1)
    model(torch.ones(1, 2)).sum().backward()
    assert model.weight.grad is not None
    model.weight.grad[0, 1] = math.inf
    with pytest.raises(whynan.CheckFailed, match=r"model\.weight\.grad: .*first at \[0, 1\]"):
        whynan.assert_finite(model)


def test_assert_finite_shows_some_of_many() -> None:
    with pytest.raises(whynan.CheckFailed, match=r"60 of 60 arrays are bad(?s:.*)\.\.\. 22 more"):
        whynan.assert_finite([torch.tensor(math.inf) for _ in range(60)], name="losses")


def test_html_is_escaped() -> None:
    page = whynan.check({"<script>": math.nan})._repr_html_()
    assert "<script>" not in page
    assert "<b>1 NaN</b>" in page


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_a_notebook_shows_how_magnitudes_are_spread(kind: torch.dtype) -> None:
    x = torch.tensor([0.0, 1.0, -1.5, 4.0, 2.0**-10, math.inf, math.nan], dtype=kind)
    for array in (x, x.repeat(3, 1).t(), x.double().numpy()):
        check = whynan.check(array)
        counts = check.items[0].summary.stats.exponents
        assert counts is not None
        assert counts.keys() == {-10, 0, 2}
        assert counts[0] == 2 * counts[2]
        page = check._repr_html_()
        assert page.count("<rect") == 3
        assert "magnitudes from 0.0009766 to 8" in page


def test_arrays_without_magnitudes_have_no_picture() -> None:
    for x in (torch.zeros(3), torch.arange(3), np.array([math.nan]), torch.empty(0), [1, 2]):
        assert "<svg" not in whynan.check(x)._repr_html_()


def test_a_picture_of_a_large_array_still_shows_both_ends() -> None:
    x = torch.cat([torch.full((1 << 20,), 1e-30), torch.full((1 << 20,), 1e30)])
    counts = whynan.check(x).items[0].summary.stats.exponents
    assert counts is not None
    assert (min(counts), max(counts)) == (-100, 99)


def test_nothing_is_printed_and_the_value_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    x = torch.tensor([1.0, math.nan], requires_grad=True)
    before = x.detach().clone()
    whynan.check(x, probability=True, logits=True)
    assert x.grad is None
    assert x._version == 0
    assert torch.equal(x.detach().nan_to_num(), before.nan_to_num())
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_places_in_a_sparse_tensor_are_those_of_the_whole(hybrid: bool, dtype: torch.dtype) -> None:
    dense = torch.zeros(3, 4, dtype=dtype)
    dense[0, 1], dense[1, 3], dense[2, 2] = 1, 900, math.nan
    item = whynan.check(dense.to_sparse(1 if hybrid else 2)).items[0]
    assert item.summary.first_bad == (2, 2)
    assert item.summary.farthest == (1, 3)


def test_one_kind_can_be_asked_for_by_its_name_alone() -> None:
    x = torch.tensor([math.inf, 1.0])
    assert whynan.check(x, only="nan")
    assert not whynan.check(x, only="inf")
    with pytest.raises(ValueError, match="unknown kind 'nans'"):
        whynan.check(x, only="nans")


def test_a_meta_tensor_has_no_values_to_check() -> None:
    weights = torch.ones(2, device="meta")
    with pytest.raises(ValueError, match="weights is on the meta device"):
        whynan.assert_finite(weights)


def test_a_single_complex_number_is_shown_with_both_parts() -> None:
    assert str(whynan.check(torch.tensor([1 + 0j]))).startswith("1 complex64  in [0, 1]")
    assert str(whynan.check(torch.tensor([2.0]))) == "1 float32  2"

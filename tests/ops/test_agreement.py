"""What one part of whynan knew of an operation and another did not: now all know it."""

from __future__ import annotations

import ast

import pytest
import torch
import torch.nn.functional as F

from tests.builders import origin
from tests.record.test_relations import maker_of
from tests.record.test_tracer import anomalies_of
from whynan.diagnosis.engine import explain_evidence
from whynan.lint.facts import Sure, nonzero
from whynan.lint.names import Names
from whynan.lint.reader import Reader
from whynan.lint.source import Source
from whynan.model import Evidence, Finding, Operand, TensorStats
from whynan.record.reads import Read
from whynan.record.records import Record
from whynan.record.relations import reads
from whynan.record.schema import info_of
from whynan.run.blocks import traced

ALL = slice(None)


def finding_of(**changes: object) -> Finding:
    evidence = Evidence(
        sink="loss", subject="loss", step=0, origin=origin(**changes), origin_kind="operation"
    )
    return explain_evidence(evidence).finding


def read(operator: str, *args: object, out: torch.Tensor, index: tuple[int, ...]) -> list[Read]:
    """As if the operator had run: most of these kernels are another device's."""
    tracer = traced().recorder.tracer

    def seen(arg: object) -> object:
        return tracer.ref(arg) if isinstance(arg, torch.Tensor) else arg

    record = Record()
    record.index, record.info = 0, info_of(getattr(torch.ops.aten, operator).default)
    record.args = [seen(arg) for arg in args]
    ref = tracer.ref(out)
    assert ref is not None
    record.outs = [ref]
    return reads(record, 0, index)


# ---- gradients ---------------------------------------------------------------------------------


def test_an_erfinv_at_its_edge_is_kept_inside() -> None:
    def program() -> torch.Tensor:
        x = torch.tensor([0.5, 1.0], requires_grad=True)
        y = torch.erfinv(x)
        torch.where(x.detach() < 1, y, 0.0).sum().backward()
        return x

    finding = anomalies_of(program)[0].finding
    (fix,) = finding.fixes
    assert fix.kind == "double_where"
    assert "torch.where(x.detach() < 1, x, 0.0)" in (fix.patch or "")


def test_the_derivative_of_log1p_is_known_by_its_name() -> None:
    def program() -> torch.Tensor:
        x = torch.tensor([-1.0, 0.5], requires_grad=True)
        torch.where(x.detach() > -1, torch.log1p(x), 0.0).sum().backward()
        return x

    finding = anomalies_of(program)[0].finding
    assert "`log1p` has no finite gradient at the edge of its domain" in finding.headline
    assert any("0 times an infinite gradient is NaN" in text for text in finding.inferred)


# ---- which elements were read ------------------------------------------------------------------


def test_a_running_logsumexp_does_not_read_what_comes_later() -> None:
    maker = maker_of(lambda: torch.tensor([0.0, 5.0, 9.0]).logcumsumexp(0)[:1])
    (x,) = maker.inputs
    assert x.slice_stats is not None
    assert x.slice_stats.shape == (1,)


HEADS = [
    "_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention", "_scaled_dot_product_attention_math_for_mps",
    "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_fused_attention_overrideable",
    "_scaled_dot_product_attention_math",
]  # fmt: skip


@pytest.mark.parametrize("kernel", HEADS)
def test_attention_reads_its_own_sample_and_head_on_every_device(kernel: str) -> None:
    q, k, v = torch.rand(2, 3, 4, 8), torch.rand(2, 3, 5, 8), torch.rand(2, 3, 5, 8)
    found = read(kernel, q, k, v, out=torch.rand(2, 3, 4, 8), index=(1, 2, 0, 7))
    assert [(r.role, r.selection, r.known) for r in found] == [
        (role, (1, 2, ALL, ALL), True) for role in ("query", "key", "value")
    ]


@pytest.mark.parametrize(
    "kernel", ["flash_attention", "flash_attention_for_cpu", "cudnn_attention"]
)
def test_so_does_its_derivative(kernel: str) -> None:
    x, log = torch.rand(2, 3, 4, 8), torch.rand(2, 3, 4)
    args = (x, x.clone(), x.clone(), x.clone(), x.clone(), log)
    found = read(f"_scaled_dot_product_{kernel}_backward", *args, out=x.clone(), index=(1, 2, 0, 7))
    assert {r.selection[:2] for r in found} == {(1, 2)}
    assert all(r.known for r in found)


def test_heads_that_share_keys_and_sequences_without_heads_claim_no_more_than_is_known() -> None:
    q, k = torch.rand(2, 4, 5, 8), torch.rand(2, 2, 5, 8)
    shared = read(HEADS[0], q, k, k.clone(), out=q.clone(), index=(1, 1, 0, 7))
    assert [(r.selection[:2], r.known) for r in shared] == [
        ((1, 1), True), ((1, ALL), False), ((1, ALL), False),
    ]  # fmt: skip
    flat = torch.rand(2, 5, 8)
    alone = read(HEADS[6], flat, flat.clone(), flat.clone(), out=flat.clone(), index=(1, 3, 7))
    assert [r.selection for r in alone] == [(1, ALL, ALL)] * 3


def test_a_fused_rms_norm_is_no_list_of_tensors() -> None:
    x, weight = torch.rand(2, 5), torch.rand(5)
    found = read("_fused_rms_norm", x, [5], weight, 1e-6, out=torch.rand(2, 5), index=(1, 3))
    assert [(r.role, r.selection) for r in found] == [("input", (1, ALL)), ("weight", (3,))]


def test_an_operator_of_the_users_is_not_torchs_of_the_same_name() -> None:
    @torch.library.custom_op("whynan_test::cumsum", mutates_args=())
    def backwards(x: torch.Tensor, dim: int) -> torch.Tensor:
        return x.flip(dim).cumsum(dim)

    maker = maker_of(lambda: backwards(torch.tensor([1.0, 2.0, 0.0]), 0)[:1])
    assert [o.value for o in maker.inputs] == [None]  # it read the last; which one is not known


# ---- rules -------------------------------------------------------------------------------------


def test_a_mask_that_hides_all_is_seen_in_the_kernel_of_another_device() -> None:
    hidden = TensorStats(shape=(1, 1, 4, 4), dtype="float32", neginf=16)
    finding = finding_of(
        op="aten._scaled_dot_product_efficient_attention.default",
        inputs=(
            Operand(role="query", stats=TensorStats(shape=(1, 1, 4, 8), dtype="float32", min=0, max=1)),
            Operand(role="attn_bias", stats=hidden),
        ),
        outputs=(Operand(role="out", stats=None, value=float("nan"), dtype="float32"),),
    )  # fmt: skip
    assert finding.mechanism == "all_masked_softmax"
    assert finding.culprit == 1


@pytest.mark.parametrize("operator", ["linalg_matrix_exp", "linalg_cross", "rrelu_with_noise"])
def test_what_only_sounds_like_a_matrix_has_overflowed(operator: str) -> None:
    big = TensorStats(shape=(3, 3), dtype="float32", min=0.0, max=1e30)
    finding = finding_of(
        op=f"aten.{operator}.default",
        inputs=(Operand(role="self", stats=big, value=1e30, index=(0, 0)),),
        outputs=(Operand(role="out", stats=None, value=float("inf"), dtype="float32"),),
        scalars={},
    )
    assert finding.mechanism == "overflow"


# ---- lint --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sure"),
    [
        ("torch.softmax(x, -1)", Sure.ROUNDED),
        ("torch.exp(x).sum()", Sure.ROUNDED),
        ("torch.sigmoid(x) * torch.cosh(x)", Sure.ROUNDED),
        ("torch.exp(x) + 1e-6", Sure.YES),
        ("torch.cosh(x)", Sure.YES),
        ("x.clamp(min=1e-6)", Sure.YES),
        ("torch.relu(x)", Sure.NO),
        ("torch.special.expit(x)", Sure.ROUNDED),
    ],
)
def test_how_surely_a_value_is_not_0(text: str, sure: Sure) -> None:
    program = f"import torch\n{text}\n"
    tree = ast.parse(program)
    line = tree.body[1]
    assert isinstance(line, ast.Expr)
    reader = Reader(
        Source(program, tree, "program.py"), Names(tree, program).top, lambda term: None
    )
    assert nonzero(reader.read(line.value)) is sure


def test_rounding_is_what_torch_does() -> None:
    small = torch.tensor([-200.0, 0.0])
    assert small.exp()[0] == small.sigmoid()[0] == F.softplus(small)[0] == small.softmax(0)[0] == 0
    assert small.cosh().min() >= 1

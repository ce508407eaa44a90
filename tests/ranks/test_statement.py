"""Whose fault it was, judged from what each rank has to say."""

from __future__ import annotations

from dataclasses import replace

from whynan.model import Evidence, Operand, OpRecord, Site, TensorStats
from whynan.ranks.statement import Statement, guilty_of, merge, with_sent

NAN = float("nan")
SITE = Site(
    file="train.py", line=3, end_line=3, column=0, end_column=4, function="f", source="a / b"
)


def operand(low: float, high: float, value: float, nan: int = 0) -> Operand:
    stats = TensorStats(shape=(4,), dtype="float32", min=low, max=high, nan=nan)
    return Operand(role="self", stats=stats, value=value)


MADE = OpRecord(
    index=1, op="aten.div.Tensor", phase="forward", step=4, site=SITE,
    inputs=(operand(0.0, 0.0, 0.0),), outputs=(operand(0.0, 0.0, NAN, nan=1),), exact=NAN,
)  # fmt: skip
# A product of moderate values whose memory holds a NaN: somebody else wrote there.
OVERWRITTEN = replace(MADE, op="aten.mm.default", inputs=(operand(-1.0, 2.0, 0.5),), exact=0.25)
OVERFLOWED = replace(OVERWRITTEN, inputs=(operand(-1e30, 1e30, 1e30),))


def evidence(origin: OpRecord = MADE, **changes: object) -> Evidence:
    plain = Evidence(
        sink="gradient",
        subject="gradient of w",
        step=4,
        origin=origin,
        origin_kind="operation",
        sink_value=NAN,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]  # by name


def statement(rank: int, *found: Evidence, **changes: object) -> Statement:
    plain = Statement(rank=rank, step=4, evidence=found, exchange="all_reduce at train.py:9")
    return replace(plain, **changes)  # type: ignore[arg-type]  # by name


def test_the_rank_whose_operation_made_it_is_named_and_the_others_received_it() -> None:
    merged = merge([statement(0, evidence(OVERWRITTEN)), statement(1, evidence())], [])
    assert [e.rank for e in merged] == [1]
    assert merged[0].ranks == (
        "rank 0: finite until it arrived by all_reduce at train.py:9 (gradient of w, step 4)",
    )


def test_a_true_overflow_is_the_ranks_own() -> None:
    merged = merge([statement(0, evidence(OVERFLOWED)), statement(1, evidence(OVERWRITTEN))], [])
    assert merged[0].rank == 0


def test_two_ranks_that_went_bad_by_themselves_are_both_named() -> None:
    merged = merge([statement(1, evidence()), statement(0, evidence())], [])
    assert merged[0].rank == 0
    assert "rank 1: went bad by itself as well at train.py:3" in merged[0].ranks[0]


def test_of_two_that_went_bad_in_one_step_the_earlier_phase_is_named() -> None:
    """The first stage of a pipeline has only a backward pass after the last one's loss."""
    later = statement(0, evidence(replace(MADE, phase="backward")))
    both = [later, statement(1, evidence(), how="rewind")]
    assert merge(both, [])[0].rank == 1
    guilty = guilty_of(both)
    assert guilty is not None
    assert guilty.how == "rewind"  # and not that of the rank that tells it


def test_a_bad_loss_outweighs_a_bad_gradient_when_nothing_was_recorded() -> None:
    seen = evidence(origin_kind="unseen")
    merged = merge([statement(0, seen), statement(1, seen, loss_was_bad=True)], [])
    assert merged[0].rank == 1
    assert "arrived by" in merged[0].ranks[0]


def test_nobody_is_accused_when_no_rank_knows() -> None:
    seen = evidence(origin_kind="unseen")
    merged = merge([statement(0, seen), statement(1, seen)], [2])
    assert merged[0].ranks[0].startswith("on which rank it began is not known")
    assert "rank 2 said nothing in time" in merged[0].ranks[-1]
    assert not any("arrived" in text for text in merged[0].ranks)


def test_ranks_without_harm_make_no_report() -> None:
    assert merge([statement(0), statement(1, error="ValueError: no")], [2]) == ()


def test_what_was_sent_is_told_only_of_a_value_that_did_harm() -> None:
    assert with_sent((), evidence()) == ()
    told = with_sent((evidence(origin_kind="entry"),), evidence(subject="what all_reduce sends"))
    assert (told[0].origin, told[0].subject) == (MADE, "gradient of w")


def test_a_statement_survives_the_way_to_another_rank() -> None:
    sent = statement(1, evidence(ranks=("x",)), loss_was_bad=True, error="E")
    assert Statement.from_json(sent.to_json()).to_json() == sent.to_json()

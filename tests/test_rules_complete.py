"""Every rule has its page, a unique code, failing programs that meet it, and a contract mechanism."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from whynan.diagnosis.registry import Rule, rules
from whynan.explain.rule_text import HEADINGS, sections

CASES = Path(__file__).parent / "cases"
MECHANISMS = {
    "division_by_zero", "log_nonpositive", "sqrt_negative", "invalid_domain", "overflow",
    "inf_minus_inf", "zero_times_inf", "inf_over_inf", "all_masked_softmax", "empty_reduction",
    "singular_matrix", "gradient_singularity", "nonfinite_data", "uninitialised_memory",
    "nan_literal", "opaque", "wrong_kernel", "unstable_result", "compiled_only",
}  # fmt: skip


def test_the_rules_are_the_mechanisms_of_the_contract() -> None:
    assert {rule.mechanism for rule in rules()} == MECHANISMS
    assert len({rule.code for rule in rules()}) == len(rules())
    assert len({rule.slug for rule in rules()}) == len(rules())


@pytest.mark.parametrize("rule", rules(), ids=lambda r: r.slug)
def test_page_has_every_heading_filled(rule: Rule) -> None:
    page = sections(rule)
    assert [h for h in page if h] == list(HEADINGS)
    assert all(text.strip() for text in page.values())


@pytest.mark.parametrize("rule", rules(), ids=lambda r: r.slug)
def test_file_is_named_after_the_rule(rule: Rule) -> None:
    assert rule.module.rsplit(".", 1)[1] == rule.slug.replace("-", "_")


@pytest.mark.parametrize("mechanism", sorted(MECHANISMS))
def test_mechanism_has_a_failing_program(mechanism: str) -> None:
    expected = [json.loads(p.read_text()) for p in CASES.glob("*/expected.json")]
    assert any(e["mechanism"] == mechanism for e in expected)

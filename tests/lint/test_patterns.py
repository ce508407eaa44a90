"""Each pattern speaks of every spelling of itself, and of nothing else."""

from __future__ import annotations

import textwrap

import pytest

from tests.lint.examples import FOUND, PRELUDE, SILENT, program
from tests.lint.spellings import SPELLINGS
from whynan.diagnosis.registry import rules
from whynan.explain.rule_text import HEADINGS, sections
from whynan.lint.checker import Checker
from whynan.lint.finding import Finding
from whynan.lint.table import Pattern, patterns

EVERY = patterns()
SLUGS = [p.slug for p in EVERY]


def findings(text: str, *named: str) -> list[Finding]:
    chosen = [p for p in EVERY if p.default or p.slug in named]
    return Checker(chosen, frozenset(named)).check(text, "train.py")


def pairs(table: dict[str, list[str]]) -> list[tuple[str, str]]:
    return [(slug, body) for slug, bodies in table.items() for body in bodies]


@pytest.mark.parametrize(("slug", "body"), pairs(FOUND))
def test_pattern_is_found_in_every_spelling(slug: str, body: str) -> None:
    found = findings(program(body), *(["clip-nonfinite"] if slug == "clip-nonfinite" else []))
    assert slug in [f.slug for f in found]


@pytest.mark.parametrize("slug", SPELLINGS)
def test_every_row_of_the_catalogue_is_found_in_at_least_five_spellings(slug: str) -> None:
    texts = {
        b: f"{PRELUDE}\n\n{b}" if b.startswith(("def ", "class ")) else program(b)
        for b in SPELLINGS[slug]
    }
    found = {b: [f.slug for f in findings(text, slug)] for b, text in texts.items()}
    assert [b for b, slugs in found.items() if slug not in slugs] == []
    assert len(texts) >= 5


@pytest.mark.parametrize(("slug", "body"), pairs(SILENT))
def test_near_miss_stays_silent(slug: str, body: str) -> None:
    named = ["clip-nonfinite"] if slug == "clip-nonfinite" else []
    assert slug not in [f.slug for f in findings(program(body), *named)]


def test_every_pattern_has_spellings_and_near_misses() -> None:
    assert set(FOUND) == set(SILENT) == set(SLUGS)
    assert len(SLUGS) == 54
    assert all(len(FOUND[s]) >= 2 and len(SILENT[s]) >= 2 for s in SLUGS)


@pytest.mark.parametrize("pattern", EVERY, ids=lambda p: p.slug)
def test_page_has_every_heading_and_its_own_file(pattern: Pattern) -> None:
    page = sections(pattern)
    assert [h for h in page if h] == list(HEADINGS)
    assert all(text.strip() for text in page.values())
    assert pattern.module.rsplit(".", 1)[1] == pattern.slug.replace("-", "_")


@pytest.mark.parametrize("pattern", EVERY, ids=lambda p: p.slug)
def test_example_of_the_page_is_found_and_its_remedy_is_not(pattern: Pattern) -> None:
    page = sections(pattern)
    named = [] if pattern.default else [pattern.slug]
    example = program(textwrap.dedent(page["Example"]))
    remedy = program(textwrap.dedent(page["Use instead"]))
    assert [f.slug for f in findings(example, *named)] == [pattern.slug]
    assert findings(remedy, *named) == []


def test_codes_are_those_of_the_run_where_there_is_one() -> None:
    runtime = {r.code: r.slug for r in rules()}
    own = {p.code for p in EVERY} - set(runtime)
    assert not set(SLUGS) & set(runtime.values())
    assert all(code >= "N060" and code < "N090" for code in own)
    # A code of lint's own means one thing.
    assert all(len([p for p in EVERY if p.code == code]) == 1 for code in own)


def test_one_expression_gets_the_most_specific_finding() -> None:
    body = "return F.nll_loss(torch.log(F.softmax(x, dim=1)), target)"
    assert [f.slug for f in findings(program(body))] == ["nll-softmax"]
    body = "return torch.sqrt(torch.sum(x ** 2, dim=1)) + 1e-8"
    assert [f.slug for f in findings(program(body))] == ["sqrt-edge"]


def test_weak_evidence_is_shown_only_when_asked_for() -> None:
    body = program("return x / x.sum()")
    assert findings(body) == []
    assert [f.slug for f in findings(body, "div-sum")] == ["div-sum"]


@pytest.mark.parametrize("pattern", EVERY, ids=lambda p: p.slug)
def test_message_and_help_are_statements_in_the_house_voice(pattern: Pattern) -> None:
    body = FOUND[pattern.slug][0]
    found = next(f for f in findings(program(body), pattern.slug) if f.slug == pattern.slug)
    for text in (found.message, found.help):
        assert not text.endswith((".", "!", "?"))
        assert "  " not in text
    assert found.severity in ("error", "warning", "info")


@pytest.mark.parametrize(
    ("mask", "is_certain"),
    [
        ("mask", False),
        ("mask.float()", False),
        ("mask * torch.sigmoid(y)", False),
        ("y > 0", True),
        ("(y > 0).float()", True),
        ("(y > 0).to(x.dtype).unsqueeze(-1)", True),
        ("y.ne(0).long()", True),
        ("mask.bool()", True),
        ("mask.to(torch.bool).float()", True),
        ("~torch.isnan(y)", True),
        ("1 - (y == 0).float()", True),
        ("torch.logical_and(y > 0, x > 0)", True),
    ],
)
def test_a_mean_over_weights_is_not_fixed_as_one_over_a_mask(mask: str, is_certain: bool) -> None:
    """A sum of weights such as [.25, .25] is below 1 and must stay what it is."""
    body = f"x = x.relu()\nkeep_mask = {mask}\nreturn (x * keep_mask).sum() / keep_mask.sum()"
    found = [f for f in findings(program(body)) if f.slug == "masked-mean"]
    assert [f.replacement is not None for f in found] == [is_certain]


def test_what_selects_by_index_is_no_weight() -> None:
    (found,) = findings(program("mask = mask.bool()\nreturn x[mask].sum() / mask.sum()"))
    assert found.replacement is not None


@pytest.mark.parametrize(
    ("bias", "condition"),
    [("mask * float('-inf')", "mask != 0"), ("(1 - mask) * float('-inf')", "mask == 0")],
)
def test_help_for_an_infinite_mask_hides_what_the_code_hides(bias: str, condition: str) -> None:
    for body in (f"return x + {bias}", f"return {bias}"):
        (found,) = findings(program(body))
        assert f"masked_fill({condition}, float(" in found.help


@pytest.mark.parametrize("path", ["tests/model.py", "src/test_loss.py", "metrics/slerp.py"])
def test_what_nobody_trains_with_is_information(path: str) -> None:
    text = program("return x.relu() / x.relu().norm(dim=-1, keepdim=True)")
    every = Checker(patterns())
    assert [f.severity for f in every.check(text, "train.py")] == ["warning"]
    assert {f.severity for f in every.check(text, path)} <= {"info"}


@pytest.mark.parametrize(
    ("body", "severity"),
    [
        ("return x / x.norm(dim=-1, keepdim=True)", "info"),
        ("x = torch.cross(y, z)\nreturn x / x.norm(dim=-1, keepdim=True)", "warning"),
        ("return (x - x.mean(0)) / x.std(0)", "info"),
        ("adv = y\nreturn (adv - adv.mean()) / adv.std()", "warning"),
        ("return torch.log(torch.softmax(x, -1))", "error"),
        ("return torch.log(torch.softmax(x, -1)).cpu().numpy()", "info"),
        ("return torch.log(torch.softmax(x, -1)).detach()", "error"),
        ("p = torch.softmax(x, -1)\nreturn p * torch.log(p + 1e-8)", "info"),
        ("loss = y * torch.log(torch.softmax(x, -1) + 1e-8)\nloss.backward()", "warning"),
        ("return torch.log(1 - torch.tanh(x) ** 2 + 1e-6)", "info"),
        ("p = x.sigmoid()\nloss = -p * torch.log(p + 1e-8)\nloss.backward()", "info"),
        ("return torch.log(torch.prod(x, 1))", "info"),
        ("return torch.log(torch.prod(x.sigmoid(), 1))", "warning"),
        (
            "if not model.training:\n    x = torch.cross(x, y)\n    x = x / x.norm()\nreturn x",
            "info",
        ),
        ("return (x - y).pow(2).sum(-1).sqrt()", "warning"),
        ("return x.pow(2).sum(-1).sqrt()", "info"),
        ("return (x.pos - y.pos).pow(2).sum(-1).sqrt()", "info"),
        ("return x / torch.clamp(x.pow(2).sum(-1).sqrt(), min=1e-8)", "warning"),
        ("loss = x[target != -100].mean()\nreturn loss.backward()", "info"),
        ("loss = F.mse_loss(x[target > 0], y[target > 0])\nreturn loss.backward()", "warning"),
        ("loss = F.mse_loss(x[mask > 0], y[mask > 0])\nreturn loss.backward()", "info"),
        ("loss = (x * mask).sum() / mask.sum()\nloss.backward()", "info"),
        ("m = (y > 0).float()\nloss = (x * m).sum() / m.sum()\nloss.backward()", "warning"),
    ],
)
def test_how_loud_a_finding_is_depends_on_what_it_does(body: str, severity: str) -> None:
    assert [f.severity for f in findings(program(body))] == [severity]

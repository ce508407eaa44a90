"""One file's findings: parse, walk, ask the rules, keep the most specific answer."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable
from dataclasses import replace

from whynan.lint.belonging import library_of
from whynan.lint.facts import NO_GRADIENT, TESTS, small_eps_added
from whynan.lint.finding import Finding, Match, Replacement, Severity
from whynan.lint.flow import Walker
from whynan.lint.layout import fitted
from whynan.lint.libraries import OTHER
from whynan.lint.skim import Skim
from whynan.lint.source import Source
from whynan.lint.suppress import Allowances
from whynan.lint.table import Pattern
from whynan.lint.table import patterns as all_patterns
from whynan.lint.terms import SHAPE_OPS, Term, same_values, strip
from whynan.lint.training import trains
from whynan.source.trees import UNREADABLE, parsed

Span = tuple[int, int, int, int]
NUMBERS = ("item", ".item", "numpy", ".numpy", "tolist", ".tolist")
SLOPE = "N021"
# Type parameters and `type` statements, which came with Python 3.12.
NEWER = re.compile(r"\s*(type \w+(\[.*\])? =|(async )?def \w+\[|class \w+\[)")
# What Python 2 wrote.
OLDER = re.compile(r"Missing parentheses in call to|multiple exception types must be|leading zeros")
IN_PLACE = re.compile(r"\.\w+[^\W_]_\(")


class Checker:
    """The chosen patterns, by the operation they are asked about."""

    def __init__(self, patterns: Iterable[Pattern], named: frozenset[str] = frozenset()) -> None:
        self.named = named  # patterns that were asked for by name: their weak matches are shown
        self.known = frozenset(name for p in all_patterns() for name in (p.slug, p.code.lower()))
        self.by_op: dict[str, list[Pattern]] = {}
        for pattern in sorted(patterns, key=lambda p: p.rank):
            for op in pattern.ops:
                self.by_op.setdefault(op, []).append(pattern)

    def check(self, text: str, path: str, *, skim: bool = True) -> list[Finding]:
        """Findings in one file; a syntax error is a finding of its own.

        `skim`: a file that cannot hold a pattern is not parsed, and its syntax errors stay unseen.
        """
        is_relevant = (skimmed := Skim(text)).is_relevant
        if skim and not is_relevant:
            return []
        try:
            tree = parsed(text)
        except UNREADABLE as error:
            return [_unparsable(error, path, text)]
        if not is_relevant:
            return []
        source = Source(text, tree, path, skimmed)
        matches: dict[Span, tuple[Pattern, Match]] = {}
        covered: set[Span] = set()

        def ask(term: Term, here: Walker) -> None:
            if term.op in NUMBERS and term.args:
                _only_shown(term.args[0], matches)
            elif term.op == "mul" and len(term.args) == 2:
                _weighed_by_itself(term, matches)
            for pattern in self.by_op.get(term.op, ()):
                if pattern.operands not in (None, len(term.args)):
                    continue
                match = pattern.check(term, here)
                if match is None or (match.weak and pattern.slug not in self.named):
                    continue
                match = _in_its_library(match, library_of(term, here))
                if match is None:
                    continue
                warns = (match.severity or pattern.severity) == "warning"
                if (pattern.code == SLOPE or match.of_slope or warns) and not trains(here):
                    match = replace(match, severity="info")
                key = _span(match.term)
                taken = matches.get(key)
                if taken is None or pattern.rank < taken[0].rank:
                    matches[key] = (pattern, match)
                    covered.update(map(_span, match.covers))

        try:
            walker = Walker(source, ask)
            walker.walk()
        except RecursionError as error:
            return [_unparsable(error, path, text)]
        matches = _each_loss_once(matches)
        allowed = Allowances(text, source.lines)
        findings = [
            _finding(pattern, match, source, path, walker.unwritten)
            for key, (pattern, match) in matches.items()
            if key not in covered
            and not allowed.covers(pattern.code, pattern.slug, match.term.node)
        ]
        findings += [
            _odd(source.lines[line - 1], path, line, column, message)
            for line, column, message in allowed.mistakes(self.known)
        ]
        return sorted(findings, key=lambda f: f.order)


def _each_loss_once(
    matches: dict[Span, tuple[Pattern, Match]],
) -> dict[Span, tuple[Pattern, Match]]:
    """A criterion that is given probabilities is one fault, however often it is called; so is a mask."""
    kept: dict[Span, tuple[Pattern, Match]] = {}
    seen: set[tuple[str, str]] = set()
    for key, (pattern, match) in sorted(matches.items()):
        called = match.term.node.func if isinstance(match.term.node, ast.Call) else None
        of_module = match.term.form == "module" and called is not None
        if match.fault or of_module:
            fault = (pattern.slug, match.fault or ast.unparse(called or match.term.node))
            if fault in seen:
                continue
            seen.add(fault)
        kept[key] = (pattern, match)
    return kept


def _only_shown(term: Term, matches: dict[Span, tuple[Pattern, Match]]) -> None:
    """Of a number that leaves torch at once, nobody wants the slope."""
    while term.op in SHAPE_OPS and term.args:  # x.log().cpu().numpy()
        term = term.args[0]
    pattern, match = matches.get(_span(term), (None, None))
    if pattern is None or match is None:
        return
    if pattern.code == SLOPE:
        del matches[_span(term)]
    else:
        matches[_span(term)] = (pattern, replace(match, severity="info"))


def _weighed_by_itself(term: Term, matches: dict[Span, tuple[Pattern, Match]]) -> None:
    """In `p * log(p + eps)` the slope that the eps stops has no weight."""
    for p, other in (term.args, term.args[::-1]):
        p, log = strip(p), strip(other)
        p = p.args[0] if p.op == "neg" else p  # `-p * log(p + eps)`
        pattern, match = matches.get(_span(log), (None, None))
        if pattern is None or match is None or not log.args:
            continue
        inner, eps = small_eps_added(log.args[0])
        if eps and same_values(p, inner):
            matches[_span(log)] = (pattern, replace(match, severity="info"))


def _odd(text: str, path: str, line: int, column: int, message: str) -> Finding:
    """A comment to whynan that does not do what its author wanted."""
    return Finding(
        path=path,
        line=line,
        column=column,
        end_line=line,
        end_column=len(text.rstrip()),
        code="N001",
        slug="unknown-allow",
        severity="warning",
        message=message,
        help="write `# whynan: allow[log-softmax]`; `whynan explain --list` shows the names",
        source=text,
    )


def _in_its_library(match: Match, library: str) -> Match | None:
    """The match as it is true where the values are a library's; None if it is about torch alone."""
    if library == OTHER and not match.elsewhere:
        return None
    help = match.elsewhere if match.elsewhere and library in ("numpy", OTHER) else match.help
    edit = match.edit if match.edit is not None and match.edit.library == library else None
    return replace(match, help=help, edit=edit)


def _span(term: Term) -> Span:
    node = term.node
    return (node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0)


def _finding(
    pattern: Pattern, match: Match, source: Source, path: str, unwritten: set[int]
) -> Finding:
    line, column = source.start(match.term.node)
    end_line, end_column = source.end(match.term.node)
    return Finding(
        path=path,
        line=line,
        column=column,
        end_line=end_line,
        end_column=end_column,
        code=pattern.code,
        slug=pattern.slug,
        severity=_severity(match.severity or pattern.severity, source),
        message=match.message,
        help=match.help,
        source=source.lines[line - 1],
        replacement=_replacement(match, source, unwritten),
    )


def _severity(own: Severity, source: Source) -> Severity:
    """What fails in a test, or where nothing is trained, is worth knowing and no more."""
    nothing_trained = NO_GRADIENT.search(source.path) or source.is_metric
    aside = TESTS.search(source.path) or (own == "warning" and nothing_trained)
    return "info" if aside else own


def _replacement(match: Match, source: Source, unwritten: set[int]) -> Replacement | None:
    edit = match.edit
    if edit is None or id(edit.node) in unwritten:
        return None  # `x /= y` is a statement, not the quotient of its two sides
    before = source.segment(edit.node)
    if before.count("#") > edit.text.count("#"):
        return None  # a comment stands in what would be replaced
    if len(IN_PLACE.findall(before)) > len(IN_PLACE.findall(edit.text)):
        return None  # writing into a tensor is an effect of its own
    place = fitted(source, edit.node, edit.text)
    if place is None:
        return None
    start, end, text = place
    return Replacement(
        start=start,
        end=end,
        text=text,
        needs=edit.needs,
        above=edit.above,
    )


def _unparsable(error: Exception, path: str, text: str) -> Finding:
    line = getattr(error, "lineno", None) or 1
    column = max(0, (getattr(error, "offset", None) or 1) - 1)
    lines = text.splitlines()
    reason = getattr(error, "msg", None) or (
        "too deeply nested" if isinstance(error, RecursionError) else str(error)
    )
    source = lines[line - 1] if 0 < line <= len(lines) else ""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    newer = NEWER.match(source) is not None
    older = OLDER.search(reason) is not None
    return Finding(
        path=path,
        line=line,
        column=column,
        end_line=line,
        end_column=column + 1,
        code="N000",
        slug="syntax-error",
        severity="info" if newer or older else "error",
        message=f"not checked: written for a newer Python than {version}, which reads it here"
        if newer
        else f"the file cannot be read as Python {version}: {reason}",
        help="run whynan with that Python"
        if newer
        else "mend the syntax; other files were checked",
        source=source,
    )

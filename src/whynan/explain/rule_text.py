"""Rule pages, from the documentation of their files: what a run proves and what lint finds."""

from __future__ import annotations

import ast
from typing import Protocol

from whynan.diagnosis.registry import Rule, rules
from whynan.errors import UsageError
from whynan.lint.table import Pattern, patterns

HEADINGS = ("What it catches", "Why it hurts", "Example", "Use instead", "When it is fine")


class Documented(Protocol):
    """What has a page."""

    @property
    def text(self) -> str: ...


def find_rule(name: str) -> Rule:
    """Look a run-time rule up by code, slug or mechanism."""
    wanted = _plain(name)
    for rule in rules():
        if wanted in (rule.code.lower(), rule.slug, rule.mechanism.replace("_", "-")):
            return rule
    known = ", ".join(f"{r.code} {r.slug}" for r in rules())
    raise UsageError(f"no rule is called {name!r}; there are: {known}")


def find_patterns(name: str) -> list[Pattern]:
    """Look lint patterns up by code (there may be several) or slug."""
    wanted = _plain(name)
    return [p for p in patterns() if wanted in (p.code.lower(), p.slug)]


def pages(name: str) -> str:
    """The page of a name; a code that a run and lint share shows both."""
    found, wanted = find_patterns(name), _plain(name)
    if any(p.slug == wanted for p in found):
        return pattern_page(next(p for p in found if p.slug == wanted))
    try:
        rule = find_rule(name)
    except UsageError:
        if not found:
            raise UsageError(
                f"no rule is called {name!r}; `whynan explain --list` shows all"
            ) from None
        return pattern_page(found[0]) if len(found) == 1 else _listing(found)
    led_by = find_patterns(rule.code)
    return "\n".join([page(rule), _listing(led_by)]) if led_by else page(rule)


def _listing(found: list[Pattern]) -> str:
    lines = ["Found in source by `whynan lint` (`whynan explain NAME` shows each)"]
    lines += [f"    {p.slug:<18} {p.title}" for p in found]
    return "\n".join(lines) + "\n"


def page(rule: Rule) -> str:
    """A run-time rule's whole page as plain text."""
    return f"{rule.code} {rule.slug} (mechanism: {rule.mechanism})\n\n{rule.text.strip()}\n"


def pattern_page(pattern: Pattern) -> str:
    """A lint pattern's whole page as plain text."""
    return f"{pattern.heading}\n\n{pattern.text.strip()}\n"


def table() -> str:
    """Every rule and pattern, one line each."""
    lines = [f"{r.code}  {r.slug:<22} {r.title}" for r in rules()]
    lines += ["", "Found in source by `whynan lint`:"]
    lines += [f"{p.code}  {p.slug:<22} {p.title}" for p in patterns()]
    return "\n".join(lines) + "\n"


def sections(rule: Documented) -> dict[str, str]:
    """The page by heading; the text before the first heading stands under ''."""
    found: dict[str, list[str]] = {"": []}
    current = ""
    for line in rule.text.strip().splitlines():
        if line in HEADINGS:
            current = line
            found[current] = []
        else:
            found[current].append(line)
    return {heading: "\n".join(lines).strip("\n") for heading, lines in found.items()}


def markdown(rule: Rule | Pattern) -> str:
    """The page as it stands in `docs/rules/`."""
    parts = sections(rule)
    if isinstance(rule, Pattern):
        head = f"# {rule.slug}\n\n{rule.heading}\n"
    else:
        head = (
            f"# {rule.code} {rule.slug}\n\nFound by `whynan run`; mechanism `{rule.mechanism}`.\n"
        )
    lines = [head, f"{parts['']}\n"]
    for heading in HEADINGS:
        body = _dedented(parts[heading])
        code = heading in ("Example", "Use instead") and _is_python(body)
        lines.append(f"## {heading}\n\n" + (f"```python\n{body}\n```\n" if code else f"{body}\n"))
    return "\n".join(lines)


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def _dedented(text: str) -> str:
    return "\n".join(line[4:] if line.startswith("    ") else line for line in text.splitlines())


def _plain(name: str) -> str:
    return name.strip().lower().replace("_", "-")

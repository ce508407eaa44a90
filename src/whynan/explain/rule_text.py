"""A rule's page, from the documentation of its file."""

from __future__ import annotations

from whynan.errors import UsageError
from whynan.registry import Rule, rules

HEADINGS = ("What it catches", "Why it hurts", "Example", "Use instead", "When it is fine")


def find_rule(name: str) -> Rule:
    """Look a rule up by code, slug or mechanism."""
    wanted = name.strip().lower().replace("_", "-")
    for rule in rules():
        if wanted in (rule.code.lower(), rule.slug, rule.mechanism.replace("_", "-")):
            return rule
    known = ", ".join(f"{r.code} {r.slug}" for r in rules())
    raise UsageError(f"no rule is called {name!r}; there are: {known}")


def page(rule: Rule) -> str:
    """The whole page as plain text."""
    return f"{rule.code} {rule.slug} (mechanism: {rule.mechanism})\n\n{rule.text.strip()}\n"


def sections(rule: Rule) -> dict[str, str]:
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

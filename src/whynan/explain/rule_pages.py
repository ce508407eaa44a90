"""Writes `docs/rules/` from the documentation of the rules: `python -m whynan.explain.rule_pages`."""

from __future__ import annotations

import sys
from pathlib import Path

from whynan.diagnosis.registry import rules
from whynan.explain.rule_text import markdown
from whynan.lint.table import patterns


def rule_pages() -> dict[str, str]:
    """Every page by file name, and the index."""
    pages = {f"{r.code.lower()}.md": markdown(r) for r in rules()}
    pages |= {f"{p.slug}.md": markdown(p) for p in patterns()}
    pages["README.md"] = _index()
    return pages


def _index() -> str:
    lines = [
        "# Rules",
        "",
        "`whynan explain NAME` shows the same pages. Written by `make rules`.",
        "",
    ]
    lines += ["## What a run proves", "", "| code | rule | |", "|---|---|---|"]
    lines += [f"| {r.code} | [{r.slug}]({r.code.lower()}.md) | {r.title} |" for r in rules()]
    lines += ["", "## What lint finds in source", "", "| code | pattern | severity | --fix | |", "|---|---|---|---|---|"]  # fmt: skip
    for p in patterns():
        shown = p.severity if p.default else f"{p.severity}, off"
        fixed = "yes" if p.fix == "sometimes" else ""
        lines.append(f"| {p.code} | [{p.slug}]({p.slug}.md) | {shown} | {fixed} | {p.title} |")
    return "\n".join(lines) + "\n"


def main(folder: Path) -> None:
    """Write the pages and remove those of rules that are gone."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = rule_pages()
    for old in folder.glob("*.md"):
        if old.name not in pages:
            old.unlink()
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

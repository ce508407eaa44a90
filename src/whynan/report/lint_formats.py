"""Lint findings for programs: JSON, and the formats of services."""

from __future__ import annotations

import json
from typing import Any

from whynan.lint.finding import Finding, Severity
from whynan.lint.table import Pattern
from whynan.report.services import Level, Remark, artifact, region
from whynan.version import __version__

LEVELS: dict[Severity, Level] = {"error": "error", "warning": "warning", "info": "note"}


def to_json(findings: list[Finding], files: int, unread: dict[str, str]) -> str:
    """Schema `whynan.lint/1`; lines from 1, columns from 0, as in the run's report."""
    document = {
        "schema": "whynan.lint/1",
        "version": __version__,
        "files": files,
        "findings": [_entry(f) for f in findings],
        "unread": [{"path": path, "reason": reason} for path, reason in unread.items()],
    }
    return json.dumps(document, indent=2, ensure_ascii=False)


def _entry(finding: Finding) -> dict[str, Any]:
    new = finding.replacement
    return {
        "path": finding.path,
        "cell": finding.cell,
        "line": finding.line,
        "column": finding.column,
        "end_line": finding.end_line,
        "end_column": finding.end_column,
        "code": finding.code,
        "slug": finding.slug,
        "severity": finding.severity,
        "message": finding.message,
        "help": finding.help,
        "source": finding.source.strip(),
        "fix": None
        if new is None
        else {
            "line": new.start[0],
            "column": new.start[1],
            "end_line": new.end[0],
            "end_column": new.end[1],
            "text": new.text,
            "import": new.needs or None,
        },
    }


def remark_of(finding: Finding) -> Remark:
    """For GitHub, SARIF and JUnit."""
    return Remark(
        path=finding.path,
        rule=f"{finding.code}/{finding.slug}",
        level=LEVELS[finding.severity],
        text=f"{finding.message}. Instead: {finding.help}",
        start=(finding.line, finding.column),
        end=(finding.end_line, finding.end_column),
        fixes=tuple(_fixes(finding)),
    )


def descriptor(pattern: Pattern) -> dict[str, Any]:
    """A pattern in SARIF's terms."""
    return {
        "id": f"{pattern.code}/{pattern.slug}",
        "name": pattern.slug,
        "shortDescription": {"text": pattern.title},
        "fullDescription": {"text": pattern.text.strip()},
        "defaultConfiguration": {"level": LEVELS[pattern.severity], "enabled": pattern.default},
    }


def _fixes(finding: Finding) -> list[dict[str, Any]]:
    new = finding.replacement
    if new is None or new.needs or finding.cell is not None:
        return []
    change = {
        "deletedRegion": region(new.start, new.end),
        "insertedContent": {"text": new.text},
    }
    where = {"artifactLocation": artifact(finding.path), "replacements": [change]}
    return [{"description": {"text": finding.help}, "artifactChanges": [where]}]

"""Lint findings for programs: JSON, SARIF 2.1.0 and GitHub annotations."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from whynan.lint.finding import Finding
from whynan.lint.table import Pattern
from whynan.version import __version__

LEVELS = {"error": "error", "warning": "warning", "info": "note"}
COMMANDS = {"error": "error", "warning": "warning", "info": "notice"}


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


def to_sarif(findings: list[Finding], patterns: list[Pattern]) -> str:
    """One run with every pattern described, for code-scanning services."""
    index = {p.slug: n for n, p in enumerate(patterns)}
    run = {
        "tool": {
            "driver": {
                "name": "whynan",
                "semanticVersion": __version__,
                "rules": [_descriptor(p) for p in patterns],
            }
        },
        "columnKind": "unicodeCodePoints",
        "results": [_result(f, index) for f in findings],
    }
    return json.dumps(
        {
            "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
            "version": "2.1.0",
            "runs": [run],
        },
        indent=2,
        ensure_ascii=False,
    )


def _descriptor(pattern: Pattern) -> dict[str, Any]:
    return {
        "id": f"{pattern.code}/{pattern.slug}",
        "name": pattern.slug,
        "shortDescription": {"text": pattern.title},
        "fullDescription": {"text": pattern.text.strip()},
        "defaultConfiguration": {"level": LEVELS[pattern.severity], "enabled": pattern.default},
    }


def _result(finding: Finding, index: dict[str, int]) -> dict[str, Any]:
    where = {"uri": quote(finding.path.replace("\\", "/"))}
    result: dict[str, Any] = {
        "ruleId": f"{finding.code}/{finding.slug}",
        "level": LEVELS[finding.severity],
        "message": {"text": f"{finding.message}. Instead: {finding.help}"},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": where,
                    "region": _region(
                        (finding.line, finding.column), (finding.end_line, finding.end_column)
                    ),
                }
            }
        ],
    }
    if finding.slug in index:
        result["ruleIndex"] = index[finding.slug]
    new = finding.replacement
    if new is not None and not new.needs and finding.cell is None:
        result["fixes"] = [
            {
                "description": {"text": finding.help},
                "artifactChanges": [
                    {
                        "artifactLocation": where,
                        "replacements": [
                            {
                                "deletedRegion": _region(new.start, new.end),
                                "insertedContent": {"text": new.text},
                            }
                        ],
                    }
                ],
            }
        ]
    return result


def _region(start: tuple[int, int], end: tuple[int, int]) -> dict[str, int]:
    return {
        "startLine": start[0],
        "startColumn": start[1] + 1,
        "endLine": end[0],
        "endColumn": end[1] + 1,
    }


def to_github(finding: Finding) -> str:
    """One workflow command; it becomes an annotation at the line."""
    fields = {
        "file": finding.path,
        "line": finding.line,
        "col": finding.column + 1,
        "endLine": finding.end_line,
        "endColumn": finding.end_column + 1,
        "title": f"{finding.code} {finding.slug}",
    }
    shown = ",".join(f"{k}={_escape(str(v), ',:')}" for k, v in fields.items())
    return f"::{COMMANDS[finding.severity]} {shown}::{_escape(f'{finding.message}. Instead: {finding.help}')}"


def _escape(text: str, more: str = "") -> str:
    for character in "%\r\n" + more:
        text = text.replace(character, f"%{ord(character):02X}")
    return text

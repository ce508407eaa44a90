"""Remarks for other programs: annotations of GitHub, SARIF 2.1.0 and JUnit's XML."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote
from xml.sax.saxutils import escape, quoteattr

from whynan.version import __version__
from whynan.voice import visible

Level = Literal["error", "warning", "note"]
COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}
Position = tuple[int, int]  # line from 1, column from 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """One thing to be said of one place."""

    path: str
    rule: str  # as `N012/log-softmax`
    level: Level
    text: str
    start: Position | None = None  # None: of the file as a whole
    end: Position | None = None
    details: str = ""  # all there is to read, where that is more than a sentence
    fixes: tuple[dict[str, Any], ...] = ()  # in SARIF's own terms

    @property
    def title(self) -> str:
        return self.rule.replace("/", " ")

    @property
    def place(self) -> str:
        return self.path if self.start is None else f"{self.path}:{self.start[0]}"


def to_github(remarks: Sequence[Remark]) -> str:
    """A workflow command each; it becomes an annotation at the line."""
    return "".join(f"{_command(remark)}\n" for remark in remarks)


def _command(remark: Remark) -> str:
    fields: dict[str, object] = {"file": remark.path}
    if remark.start is not None:
        fields |= {"line": remark.start[0], "col": remark.start[1] + 1}
    if remark.end is not None:
        fields |= {"endLine": remark.end[0], "endColumn": remark.end[1] + 1}
    fields["title"] = remark.title
    shown = ",".join(f"{k}={_escape(str(v), ',:')}" for k, v in fields.items())
    return f"::{COMMANDS[remark.level]} {shown}::{_escape(remark.text)}"


def _escape(text: str, more: str = "") -> str:
    for character in "%\r\n" + more:
        text = text.replace(character, f"%{ord(character):02X}")
    return text


def to_sarif(remarks: Sequence[Remark], rules: Sequence[dict[str, Any]]) -> str:
    """One run with every rule described, for code-scanning services."""
    index = {rule["id"]: n for n, rule in enumerate(rules)}
    driver = {"name": "whynan", "semanticVersion": __version__, "rules": list(rules)}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(remark, index) for remark in remarks],
    }
    document = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [run],
    }
    return json.dumps(document, indent=2, ensure_ascii=False)


def artifact(path: str) -> dict[str, str]:
    """Where a file is, in SARIF's terms."""
    return {"uri": quote(path.replace("\\", "/"))}


def region(start: Position, end: Position | None) -> dict[str, int]:
    """A piece of a file in SARIF's terms."""
    where = {"startLine": start[0], "startColumn": start[1] + 1}
    return where if end is None else where | {"endLine": end[0], "endColumn": end[1] + 1}


def _result(remark: Remark, index: dict[str, int]) -> dict[str, Any]:
    place: dict[str, Any] = {"artifactLocation": artifact(remark.path)}
    if remark.start is not None:
        place["region"] = region(remark.start, remark.end)
    result: dict[str, Any] = {
        "ruleId": remark.rule,
        "level": remark.level,
        "message": {"text": remark.text},
        "locations": [{"physicalLocation": place}],
    }
    if remark.rule in index:
        result["ruleIndex"] = index[remark.rule]
    if remark.fixes:
        result["fixes"] = list(remark.fixes)
    return result


def to_junit(suite: str, remarks: Sequence[Remark], sound: Sequence[str]) -> str:
    """A failed test for each remark, a passed one for each name of what is sound."""
    lines = [
        '<?xml version="1.0" encoding="utf-8"?>',
        f'<testsuites><testsuite name={_quoted(suite)} tests="{len(remarks) + len(sound)}" '
        f'failures="{len(remarks)}" errors="0" skipped="0">',
    ]
    for remark in remarks:
        case = f"<testcase classname={_quoted(suite)} name={_quoted(f'{remark.place} {remark.title}')}>"
        kind = f"message={_quoted(remark.text)} type={_quoted(remark.title)}"
        body = escape(visible(remark.details or remark.text))
        lines.append(f"{case}<failure {kind}>{body}</failure></testcase>")
    lines += [f"<testcase classname={_quoted(suite)} name={_quoted(name)}/>" for name in sound]
    return "\n".join([*lines, "</testsuite></testsuites>"])


def _quoted(text: str) -> str:
    return quoteattr(visible(text))

"""A diagnosis for services that collect findings: GitHub, code scanning, boards of test results."""

from __future__ import annotations

from typing import Any, Literal

from whynan.diagnosis.registry import Rule, rules
from whynan.explain.story import tell, typed
from whynan.model import Anomaly, Diagnosis, Site
from whynan.report import services, terminal
from whynan.report.services import Remark
from whynan.source.quotes import short_path

Format = Literal["github", "sarif", "junit"]
ENDINGS = {"sarif": "whynan.sarif", "junit": "whynan-junit.xml"}


def as_format(diagnosis: Diagnosis, style: Format) -> str:
    """The report in the words of one of them."""
    remarks = [_remark(anomaly, diagnosis) for anomaly in diagnosis.anomalies]
    if style == "github":
        return services.to_github(remarks)
    if style == "sarif":
        return services.to_sarif(remarks, [_descriptor(rule) for rule in rules()]) + "\n"
    sound = [] if remarks else [short_path(diagnosis.script)]
    return services.to_junit("whynan run", remarks, sound) + "\n"


def _remark(anomaly: Anomaly, diagnosis: Diagnosis) -> Remark:
    finding = anomaly.finding
    site = anomaly.origin.site or anomaly.evidence.sink_site
    change = f". To change: {finding.fixes[0].title}" if finding.fixes else ""
    start, end = _region(site)
    return Remark(
        path=short_path(site.file if site else diagnosis.script),
        rule=f"{finding.code}/{finding.slug}" if finding.slug else finding.code,
        level="error",
        text=finding.headline + change,
        start=start,
        end=end,
        details=terminal.to_text(terminal.draw([tell(anomaly, typed(diagnosis))])),
    )


def _region(site: Site | None) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
    if site is None:
        return None, None
    if site.column is None or site.end_column is None:
        return (site.line, 0), None
    return (site.line, site.column), (site.end_line, site.end_column)


def _descriptor(rule: Rule) -> dict[str, Any]:
    return {
        "id": f"{rule.code}/{rule.slug}",
        "name": rule.slug,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.text.strip()},
        "defaultConfiguration": {"level": "error"},
    }

"""Evidence to anomaly: name the operands, run the rules, link the chain."""

from __future__ import annotations

import platform
from dataclasses import replace

from whynan.diagnosis.array_fixes import array_fixes
from whynan.diagnosis.at_the_call import at_the_call
from whynan.diagnosis.causes import causes_of
from whynan.diagnosis.chain import chain_of
from whynan.diagnosis.circumstances import became_a_setting, help_of_a_setting, helps_around
from whynan.diagnosis.eagerly import in_eager_mode
from whynan.diagnosis.naming import operand_names
from whynan.diagnosis.numpy_said import finding_by_words
from whynan.diagnosis.optimizer_fixes import is_torchs_update, optimizer_fixes
from whynan.diagnosis.registry import Rule, rules
from whynan.diagnosis.roots import with_root
from whynan.diagnosis.rules.opaque_op import unexplained
from whynan.model import Anomaly, Diagnosis, Evidence, Finding, OpRecord, Outcome
from whynan.recording import Recording
from whynan.version import __version__

TORCH_NAMESPACES = ("aten", "prims", "entry", "torchvision", "c10d", "array")

UNTRIED = "whether another kernel gives the same, for none was tried: "


def diagnose(
    recording: Recording, *, script: str = "", outcome: Outcome | None = None
) -> Diagnosis:
    """Explain every harm in a recording.

    >>> diagnose(Recording()).outcome
    'clean'
    """
    anomalies = tuple(explain_evidence(evidence) for evidence in recording.evidence)
    versions = {"whynan": __version__, "python": platform.python_version()}
    if recording.torch_version:
        versions["torch"] = recording.torch_version
    return Diagnosis(
        anomalies=anomalies,
        outcome="anomaly" if anomalies else outcome or "clean",
        steps=recording.steps,
        script=script,
        history=recording.history,
        versions=versions,
        notes=recording.notes,
    )


# What a rule calls the change that the source shows.
SAME = {
    "cast_float32": "wider_dtype", "cast_float64": "wider_dtype", "bfloat16": "wider_dtype",
    "clamp_base": "clamp_argument", "clamp_count": "clamp_denominator", "clamp_variable": "clamp_argument",
    "softplus_output": "positive_form", "logdet": "slogdet", "log_domain": "log_space", "cdist": "stable_form",
}  # fmt: skip
LIBRARIES = ("array.", "numpy.", "jax.", "scipy.")  # what made the value, where it is not torch


def explain_evidence(evidence: Evidence) -> Anomaly:
    """The mechanism, proven by exactly one rule, with causes and chain."""
    try:
        return _explain(evidence)
    except Exception as error:  # the harm is told all the same
        finding = Finding(
            headline=f"{evidence.subject} went bad at step {evidence.step}",
            unknown=(f"what did it: an error of whynan's own came in between, {error!r}",),
        )
        return Anomaly(evidence=evidence, finding=_signed(finding, _rule_of("opaque")), chain=())


def _explain(evidence: Evidence) -> Anomaly:
    origin = _named(evidence.origin)
    evidence = replace(evidence, origin=origin)
    finding = _finding(evidence)
    if origin.opinions is not None and origin.opinions.judgement == "untried":
        finding = replace(finding, unknown=(*finding.unknown, UNTRIED + origin.opinions.why))
    if origin.op.startswith(LIBRARIES):
        observed = (*finding.observed, *became_a_setting(evidence))
        fixes = array_fixes(finding.mechanism, origin.op)
        finding = replace(finding, observed=observed, fixes=fixes)
    elif is_torchs_update(origin):
        finding = replace(finding, fixes=optimizer_fixes(origin, finding))
    culprit = origin.inputs[finding.culprit] if finding.culprit is not None else None
    if not finding.causes:
        causes = causes_of(evidence, finding.mechanism, origin, culprit)
        fixes = help_of_a_setting(evidence, helps_around(origin, causes, finding.fixes))
        finding = with_root(replace(finding, causes=causes, fixes=fixes), evidence)
        finding = at_the_call(finding, evidence, culprit)
    finding = in_eager_mode(_with_change(finding, evidence), evidence)
    return Anomaly(evidence=evidence, finding=finding, chain=chain_of(evidence, finding))


def _with_change(finding: Finding, evidence: Evidence) -> Finding:
    """What was found in the source stands in the place of the rule's sentence for it."""
    change, fixes = evidence.change, finding.fixes
    if change is None:
        return finding
    others = tuple(f for f in fixes if f.kind not in (change.kind, SAME.get(change.kind)))
    return replace(finding, fixes=(change, *(others if others != fixes else fixes[1:])))


def _named(op: OpRecord) -> OpRecord:
    names = operand_names(op)
    inputs = tuple(
        replace(o, name=name or o.name) for o, name in zip(op.inputs, names, strict=True)
    )
    return replace(op, inputs=inputs)


def _finding(evidence: Evidence) -> Finding:
    op = evidence.origin
    told = finding_by_words(op, evidence)
    if told is not None:
        return _signed(told, _rule_of(told.mechanism))
    visible = op.op.split(".")[0] in TORCH_NAMESPACES
    for rule in rules():
        if evidence.origin_kind not in rule.kinds or (rule.ops and op.name not in rule.ops):
            continue
        if not visible and not rule.everywhere and evidence.origin_kind == "operation":
            continue
        finding = rule.check(op, evidence)
        if finding is not None:
            return _signed(finding, rule)
    return _signed(unexplained(op, evidence), _rule_of("opaque"))


def _rule_of(mechanism: str) -> Rule:
    return next(rule for rule in rules() if rule.mechanism == mechanism)


def _signed(finding: Finding, rule: Rule) -> Finding:
    return replace(finding, code=rule.code, slug=rule.slug, mechanism=rule.mechanism)

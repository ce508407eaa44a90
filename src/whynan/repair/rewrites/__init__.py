"""Changes an expert would make, one family of them per file."""

from __future__ import annotations

from whynan import voice
from whynan.model import Anomaly
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.rewrites import (
    across,
    arrays,
    batches,
    ceilings,
    clamps,
    converged,
    corrections,
    cosines,
    counted,
    data,
    division,
    domain,
    endings,
    entropy,
    existing,
    exponentials,
    features,
    gaps,
    ignored,
    iterations,
    learnt,
    log_space,
    logarithms,
    marked,
    masks,
    matrices,
    moments,
    moved,
    noise,
    normalised,
    options,
    outliers,
    plain,
    precision,
    products,
    reading,
    roots,
    running_sums,
    scaled,
    schedules,
    selection,
    spreads,
    squashed,
    steps,
    switches,
    tables,
    training,
)
from whynan.repair.rewrites.ratios import impossible

FAMILIES = (
    marked, scaled, entropy, noise, normalised, squashed, products, moments, existing, options, schedules, counted, logarithms, across, moved, running_sums, corrections, iterations, ceilings, exponentials, log_space, roots, selection, plain, cosines, converged, ignored, division, domain, clamps, learnt, batches, masks, matrices, tables, precision, switches, spreads, gaps, reading, outliers, data,
    features,
    endings,
    steps,
    training,
)  # fmt: skip

# Training-level changes that answer a cause directly.
REMEDIES = {
    "lower_lr": {"high_learning_rate", "exploding_gradients"},
    "kaiming_init": {"bad_init"},
    "standardise": {"bad_data", "high_learning_rate", "exploding_gradients"},
    "drop_outliers": {"bad_data"},
    "drop_fill_values": {"bad_data"},
    "clip_grad_norm": {"exploding_gradients"},
    "lower_momentum": {"setting"},
    "lower_weight_decay": {"setting"},
}

# A number chosen for the singular point alone: the last resort of the guards.
PLAIN_BOUNDS = frozenset(
    {"clamp_argument", "clamp_denominator", "clamp_base", "clamp_variable", "clamp_exponent", "add_eps",
     "where_zero", "finite_scores", "finite_constant"}
)  # fmt: skip


def propose(case: Case) -> list[Candidate]:
    """Every change that fits the recorded dataflow and the source: exact ones first."""
    found: list[Candidate] = []
    if impossible(case) is not None:
        return found  # of wrong numbers no bound makes right ones
    for family in (
        (
            schedules,
            counted,
            converged,
            tables,
            spreads,
            plain,
            existing,
            arrays,
            gaps,
            reading,
            data,
        )
        if arrays.is_array(case)
        else FAMILIES
    ):
        try:
            found += (moved.handed_over(case, candidate) for candidate in family.propose(case))
        except Exception as error:  # one family's fault must not cost the user the others
            name = family.__name__.rsplit(".", 1)[-1]
            voice.say(f"stepped over {name}, which failed: {error!r}")
    unique: dict[object, Candidate] = {}
    for candidate in found:
        unique.setdefault(tuple(sorted(candidate.texts.items())), candidate)
    return sorted(unique.values(), key=lambda c: _rank(c, case))


def answers_cause(candidate: Candidate, anomaly: Anomaly) -> bool:
    """Whether it mends what the findings name as the cause, and not only the line that failed."""
    causes = {cause.code for cause in anomaly.finding.causes[:1]}
    around = anomaly.evidence.around
    if around.odd_cell is not None and around.oddity is None:
        causes -= {
            "bad_data"
        }  # a row that a formula does not bear is no reason to leave the formula
    return bool(causes & REMEDIES.get(candidate.kind, set()))


def _rank(candidate: Candidate, case: Case) -> float:
    """By tier; but where the learning rate is the cause, a guard would only hide it, and for inputs
    that were never scaled every rate is too high. Of the guards, those that say what the value means
    come before a bound, and another type comes last."""
    if candidate.kind == "line_search":
        return 0.5  # without one, any formula is asked at places where nobody meant to be
    if answers_cause(candidate, case.anomaly):
        return 0.4 if candidate.kind == "standardise" and candidate.texts else 0.5
    within = 0.1 * (candidate.kind in PLAIN_BOUNDS) + 0.2 * (candidate.kind == "bfloat16")
    return candidate.tier + (within if candidate.tier is Tier.GUARD else 0.0)

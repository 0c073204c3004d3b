"""Spends the error of a verdict over looks at a growing sample, so that many looks promise once.

A wrong "passed" is possible only where the truth fails, and a wrong "failed" only where it passes,
so each has the whole error to itself. What is spent by a share t of the looks is alpha t^rho (Kim
and DeMets 1987): evenly for failing, which few anchors can show, and late for passing, which few
cannot. The errors of all looks add up to alpha, so nothing is assumed of how they depend on each
other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from acpc.contract import MAX_RESAMPLES, Evidence, EvidenceOptions, Look, Outcome

PASSING_POWER = 3
SPENDING = f"Kim-DeMets, rho 1 for failing and {PASSING_POWER} for passing, added over looks"
_IN_TAILS = 4


@dataclass(frozen=True)
class Seen:
    """What a look saw.

    Attributes:
        look: Its errors and p-values.
        options: The confidence and resamples at which its evidence contradicts no verdict.
        decided: Whether the confident outcome is certain.
    """

    look: Look
    options: EvidenceOptions
    decided: bool


def take_look(
    weigh: Callable[[EvidenceOptions], Evidence],
    options: EvidenceOptions,
    t_sr: float,
    before: Sequence[Look],
    looks: int,
    *,
    anchors: int,
    eligible: int,
) -> Seen:
    """Judges the anchors that are measured by now.

    Args:
        weigh: The evidence of these anchors; not called where none is eligible.
        options: Confidence of the verdict over all looks, and what else the evidence is made of.
        t_sr: Threshold of SR.
        before: The looks so far.
        looks: How many there are at most.
        anchors: Measured by now.
        eligible: Those that take part in SR; they follow from the states, not from the model.
    """
    alpha, share = 1 - options.confidence, (len(before) + 1) / looks
    failing = alpha * share - sum(look.failing for look in before)
    passing = alpha * share**PASSING_POWER - sum(look.passing for look in before)
    if t_sr**eligible > passing:  # not even if all of them are separated
        passing = 0.0
    if not eligible:
        return Seen(Look(anchors, 0, 0.0, 0.0, 1.0, 1.0), options, decided=False)
    resamples = min(max(options.resamples, math.ceil(_IN_TAILS / failing)), MAX_RESAMPLES)
    strict = replace(options, confidence=1 - failing, resamples=resamples)
    found = weigh(strict)
    look = Look(anchors, eligible, passing, failing, found.p_passed, found.p_failed)
    if found.confident_outcome in (Outcome.FAILED, Outcome.INCONCLUSIVE):
        return Seen(look, strict, decided=True)
    if found.p_passed <= passing:
        able = replace(strict, confidence=1 - passing)
        if weigh(able).confident_outcome is Outcome.PASSED:
            return Seen(look, able, decided=True)
    return Seen(look, strict, decided=False)

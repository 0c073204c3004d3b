"""Weighs a score: intervals of its numbers, and the verdict that these support."""

from __future__ import annotations

import numpy as np
from acpc.contract import Evidence, EvidenceOptions, Interval, ScoreProtocol, Thresholds
from acpc.evidence import BOOTSTRAP, AnchorSample, Estimate, interval

from acpc_server.evidence.confident import ConfidentVerdict
from acpc_server.evidence.numbers import Numbers
from acpc_server.evidence.separation import FEW_PAIRS
from acpc_server.numerics import Check, go_on

METHOD = f"{BOOTSTRAP}; binomial bounds at effective sample sizes"
MIN_TRAJECTORIES = 20
_FLOORS_IN_DOUBT = 10


def judge(
    checkpoint: AnchorSample,
    reference: AnchorSample | None,
    protocol: ScoreProtocol,
    thresholds: Thresholds,
    options: EvidenceOptions,
    check: Check = go_on,
) -> Evidence:
    """Intervals of a score's numbers, and the verdict that they support.

    Args:
        checkpoint: What the checkpoint gave on the anchors.
        reference: What the reference gave on the same anchors, the checkpoint's own sample where
            they are one; None without a reference.
        protocol: The quantile of IR and the margin of SR.
        thresholds: Of the screen.
        options: Confidence, resamples and seed.
        check: Called again and again; what it raises ends the resampling.

    Raises:
        FailedPrecondition: The reference's raw IR is 0.
    """
    numbers = Numbers.of(checkpoint, reference, protocol, options, check)
    verdict = ConfidentVerdict(numbers, thresholds, 1 - options.confidence)
    outcome, doubt = verdict.outcome()

    def shown(estimate: Estimate | None) -> Interval | None:
        return None if estimate is None else interval(estimate, options.confidence)

    return Evidence(
        confidence=options.confidence,
        ir_raw=interval(numbers.ir_raw, options.confidence),
        reference_ir_raw=shown(numbers.reference_ir_raw),
        ir_relative=shown(numbers.ir_relative),
        sr=interval(numbers.sr, options.confidence),
        reference_sr=shown(numbers.reference_sr),
        score=verdict.score(),
        delta_score=verdict.delta_score(),
        confident_outcome=outcome,
        doubt=doubt,
        anchors_to_decide=verdict.anchors_to_decide(len(checkpoint.radius)),
        trajectories=len(np.unique(checkpoint.trajectory)),
        resamples=options.resamples,
        seed=options.seed,
        p_passed=verdict.p_passed(),
        p_failed=verdict.p_failed(),
        notes=tuple(_notes(checkpoint, numbers.ir_raw.point)),
    )


def _notes(sample: AnchorSample, ir_raw: float) -> list[str]:
    eligible, found = int(sample.eligible.sum()), len(np.unique(sample.trajectory))
    notes = []
    if eligible < FEW_PAIRS:
        notes.append(
            f"SR rests on {eligible} eligible anchors; with fewer than {FEW_PAIRS} its interval "
            "is wide: give more anchors"
        )
    if found == 1:
        notes.append(
            "all anchors come from one trajectory; the intervals take them for independent and "
            "say nothing of other trajectories"
        )
    elif found < MIN_TRAJECTORIES:
        notes.append(
            f"the anchors come from {found} trajectories; with fewer than {MIN_TRAJECTORIES} the "
            "intervals may be too narrow, and with very few relative IR has none: draw anchors "
            "from more"
        )
    if sample.rounding_floor and ir_raw <= _FLOORS_IN_DOUBT * sample.rounding_floor:
        notes.append("raw IR is near its rounding floor; the intervals leave rounding out")
    return notes

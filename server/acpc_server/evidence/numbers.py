"""The numbers of a score, each with bounds at any level."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from acpc.contract import EvidenceOptions, ScoreProtocol
from acpc.evidence import (
    BOOTSTRAP,
    AnchorSample,
    FewGroups,
    OrderStatistics,
    Proportion,
    Resampled,
    design_effect,
    effective_groups,
    groups,
    resampled_quantiles,
)
from jaxtyping import Float64, Int64

from acpc_server.evidence.separation import separation
from acpc_server.numerics import Check, go_on, verdict


@dataclass(frozen=True)
class Numbers:
    """Raw IR, relative IR and SR of a checkpoint and its reference; None without one."""

    ir_raw: OrderStatistics
    sr: Proportion
    ir_relative: Resampled | None = None
    reference_ir_raw: OrderStatistics | None = None
    reference_sr: Proportion | None = None

    @classmethod
    def of(
        cls,
        checkpoint: AnchorSample,
        reference: AnchorSample | None,
        protocol: ScoreProtocol,
        options: EvidenceOptions,
        check: Check = go_on,
    ) -> Numbers:
        """The numbers of these samples, their raw IR resampled together.

        Raises:
            FailedPrecondition: The reference's raw IR is 0.
        """
        group = groups(checkpoint)
        confidence = options.confidence
        ir_raw = _radius(checkpoint, group, protocol.quantile, confidence)
        sr = separation(checkpoint, group, protocol.margin, ir_raw, confidence)
        if reference is None:
            return cls(ir_raw, sr)
        against, against_sr = ir_raw, sr
        if reference is not checkpoint:
            against = _radius(reference, group, protocol.quantile, confidence)
            against_sr = separation(reference, group, protocol.margin, against, confidence)
        radii = [checkpoint.radius, reference.radius]
        few = FewGroups(effective_groups(group), confidence=confidence)
        point = verdict.relative_ir(ir_raw.point, against.point)
        ratio = Resampled(point, np.empty(0), BOOTSTRAP, few)
        above_all = protocol.quantile * (len(group) + 1) > len(group)
        if not above_all and 1 - confidence >= few.least:
            values = resampled_quantiles(radii, group, protocol.quantile, options, few, check)
            ratio = replace(ratio, ordered=_ratios(values))
        return cls(ir_raw, sr, ratio, against, against_sr)


def _radius(
    sample: AnchorSample, group: Int64[np.ndarray, "n"], quantile: float, confidence: float
) -> OrderStatistics:
    """Raw IR, with as many independent anchors as the share below it, or below half, is worth."""
    radius = sample.radius
    point, count, ends = float(np.quantile(radius, quantile)), len(radius), np.stack([group, group])
    below = (radius <= point, radius <= np.median(radius))
    design = max(1.0, *(design_effect(hits, ends) for hits in below))
    few = FewGroups(effective_groups(group), count, confidence)
    return OrderStatistics(point, np.sort(radius), quantile, count / (design * few.factor))


def _ratios(values: Float64[np.ndarray, "2 resamples"]) -> Float64[np.ndarray, "resamples"]:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.sort(np.nan_to_num(values[0] / values[1], nan=np.inf, posinf=np.inf))

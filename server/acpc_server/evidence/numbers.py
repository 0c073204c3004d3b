"""The numbers of a score, each with bounds at any level."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from acpc.contract import EvidenceOptions, ScoreProtocol
from jaxtyping import Float64, Int64

from acpc_server.evidence.estimates import OrderStatistics, Proportion, Resampled
from acpc_server.evidence.resampling import effective_groups, resampled_quantiles, spread_factor
from acpc_server.evidence.sample import AnchorSample, groups
from acpc_server.evidence.separation import design_effect, separation
from acpc_server.numerics import verdict

BOOTSTRAP = "Bayesian bootstrap over trajectories"


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
    ) -> Numbers:
        """The numbers of these samples, their raw IR resampled together.

        Raises:
            FailedPrecondition: The reference's raw IR is 0.
        """
        group = groups(checkpoint)
        ir_raw = _radius(checkpoint, group, protocol.quantile)
        sr = separation(checkpoint, group, protocol.margin, ir_raw)
        if reference is None:
            return cls(ir_raw, sr)
        against, against_sr = ir_raw, sr
        if reference is not checkpoint:
            against = _radius(reference, group, protocol.quantile)
            against_sr = separation(reference, group, protocol.margin, against)
        point = verdict.relative_ir(ir_raw.point, against.point)
        radii = [checkpoint.radius, reference.radius]
        values = resampled_quantiles(radii, group, protocol.quantile, options)
        ratio = _ratio(values, point)
        if protocol.quantile * (len(group) + 1) > len(group):  # it lies above all anchors
            ratio = replace(ratio, ordered=np.empty(0))
        return cls(ir_raw, sr, ratio, against, against_sr)


def _radius(
    sample: AnchorSample, group: Int64[np.ndarray, "n"], quantile: float
) -> OrderStatistics:
    """Raw IR, with as many independent anchors as the share below it, or below half, is worth."""
    radius = sample.radius
    point, count, ends = float(np.quantile(radius, quantile)), len(radius), np.stack([group, group])
    below = (radius <= point, radius <= np.median(radius))
    design = max(1.0, *(design_effect(hits, ends) for hits in below))
    few = spread_factor(effective_groups(group)) / spread_factor(count)
    return OrderStatistics(point, np.sort(radius), quantile, count / (design * max(1.0, few)))


def _ratio(values: Float64[np.ndarray, "2 resamples"], point: float) -> Resampled:
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.nan_to_num(values[0] / values[1], nan=np.inf, posinf=np.inf)
    return Resampled(point, np.sort(ratios), BOOTSTRAP)

"""The numbers of a score, each with bounds at any level."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from acpc.contract import EvidenceOptions, ScoreProtocol

from acpc_server.evidence.estimates import Proportion, Resampled
from acpc_server.evidence.resampling import resampled_quantiles
from acpc_server.evidence.sample import AnchorSample, groups
from acpc_server.evidence.separation import separation

BOOTSTRAP = "Bayesian bootstrap over trajectories"


@dataclass(frozen=True)
class Numbers:
    """Raw IR, relative IR and SR of a checkpoint and its reference; None without one."""

    ir_raw: Resampled
    sr: Proportion
    ir_relative: Resampled | None = None
    reference_ir_raw: Resampled | None = None
    reference_sr: Proportion | None = None

    @classmethod
    def of(
        cls,
        checkpoint: AnchorSample,
        reference: AnchorSample | None,
        protocol: ScoreProtocol,
        options: EvidenceOptions,
    ) -> Numbers:
        """The numbers of these samples, their raw IR resampled together."""
        group = groups(checkpoint)
        sides = [checkpoint]
        if reference is not None and reference is not checkpoint:
            sides.append(reference)
        resampled = resampled_quantiles(
            [side.radius for side in sides], group, protocol.quantile, options
        )
        points = [float(np.quantile(side.radius, protocol.quantile)) for side in sides]
        irs = [_sorted(point, values) for point, values in zip(points, resampled, strict=True)]
        srs = [
            separation(side, group, point + protocol.margin)
            for side, point in zip(sides, points, strict=True)
        ]
        if reference is None:
            return cls(irs[0], srs[0])
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.nan_to_num(resampled[0] / resampled[-1], nan=np.inf, posinf=np.inf)
        return cls(irs[0], srs[0], _sorted(points[0] / points[-1], ratios), irs[-1], srs[-1])


def _sorted(point: float, values: np.ndarray) -> Resampled:
    return Resampled(point, np.sort(values), BOOTSTRAP)

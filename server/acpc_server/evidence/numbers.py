"""Raw IR, relative IR and SR with bounds at any level, all from the same weights of trajectories.

Each resample gives every trajectory an exponential weight, and one more to a trajectory that no
sample holds: for one end its values are the worst there can be, for the other the best. Of values
between 0 and 1 that is Gaffke's bound of a mean, of a share that of Clopper and Pearson, and of a
quantile the order statistics.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from acpc.contract import EvidenceOptions, ScoreProtocol
from acpc.evidence import (
    CheckpointSample,
    Resampled,
    draw_weights,
    dyadic_variance,
    effective_groups,
    groups,
)
from jaxtyping import Bool, Float64, Int64

from acpc_server.numerics import Check, go_on, verdict

METHOD = "joint weights of trajectories, one of them unseen"
FEW_PAIRS = 30
"""Fewer pairs than these have a warning."""
_FEW_PARTNERS = 5
"""So few effective partners are the sample; of four times as many each has half its weight."""


@dataclass(frozen=True)
class Numbers:
    """Numbers of a checkpoint and its reference; None without one."""

    trajectories: int
    ir_raw: Resampled
    sr: Resampled
    ir_relative: Resampled | None = None
    reference_ir_raw: Resampled | None = None
    reference_sr: Resampled | None = None

    @classmethod
    def of(
        cls,
        checkpoint: CheckpointSample,
        reference: CheckpointSample | None,
        protocol: ScoreProtocol,
        options: EvidenceOptions,
        check: Check = go_on,
    ) -> Numbers:
        """Compute the numbers of these samples, all resampled together.

        FailedPrecondition where the reference's raw IR is 0.
        """
        group = groups(checkpoint)
        own = _Side(checkpoint, group, protocol, options)
        other = own
        if reference is not None and reference is not checkpoint:
            other = _Side(reference, group, protocol, options)
        for rows, weights in draw_weights(group, options):
            check()
            for side in {id(side): side for side in (own, other)}.values():
                side.resample(rows, weights)
        count = int(group.max()) + 1
        if reference is None:
            return cls(count, own.ir_raw(), own.sr())
        ratio = verdict.relative_ir(own.radius_at, other.radius_at)
        low, high = np.ones((2, options.resamples))
        if other is not own:
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                low = np.nan_to_num(own.ir_low / other.ir_high, nan=0.0, posinf=math.inf)
                high = np.nan_to_num(own.ir_high / other.ir_low, nan=math.inf, posinf=math.inf)
        relative = Resampled(ratio, np.sort(low), np.sort(high), METHOD)
        return cls(count, own.ir_raw(), own.sr(), relative, other.ir_raw(), other.sr())


class _Side:
    """One checkpoint's radii and distances in order, and what resamples make of them."""

    def __init__(
        self,
        sample: CheckpointSample,
        group: Int64[np.ndarray, "n"],
        protocol: ScoreProtocol,
        options: EvidenceOptions,
    ) -> None:
        self._quantile, self._margin = protocol.quantile, protocol.margin
        self._alpha = 1 - options.confidence
        order = np.argsort(sample.radius, kind="stable")
        self._radius, self._group = sample.radius[order], group[order]
        self._unseen = len(group) / (int(group.max()) + 1)
        self.radius_at = float(np.quantile(sample.radius, protocol.quantile))
        pairs = np.flatnonzero(sample.eligible)
        pairs = pairs[np.argsort(sample.distance[pairs], kind="stable")]
        self._distance = sample.distance[pairs]
        self._ends = np.stack([group[pairs], group[sample.partner[pairs]]])
        samples, partners = len(np.unique(self._ends[0])), effective_groups(self._ends[1])
        few = partners <= _FEW_PARTNERS
        self._unseen_pairs = len(pairs) / (min(samples, partners) if few else samples)
        separated = self._distance > self.radius_at + self._margin
        self._separated = float(separated.mean())
        self._power = _partner_power(separated, self._ends)
        self.ir_low, self.ir_high, self._sr_low, self._sr_high = np.empty((4, options.resamples))

    def ir_raw(self) -> Resampled:
        return Resampled(self.radius_at, np.sort(self.ir_low), np.sort(self.ir_high), METHOD)

    def sr(self) -> Resampled:
        """SR; all error is below where IR's upper end, of as much, leaves all pairs separated."""
        low, high = np.sort(self._sr_low), np.sort(self._sr_high)
        firm = bool(self._distance[0] > self.ir_raw().upper(2 * self._alpha) + self._margin)
        return Resampled(self._separated, low, high, METHOD, most=1.0, one_sided=firm)

    def resample(self, rows: slice, weights: Float64[np.ndarray, "rows weights"]) -> None:
        """Fill in these rows: IR and, beyond it, SR, with the unseen trajectory at either end."""
        unseen, q = weights[:, -1], self._quantile
        reached = np.cumsum(weights[:, self._group], axis=1)
        total, mass = reached[:, -1], self._unseen * unseen
        wanted = np.stack([q * total - (1 - q) * mass, q * (total + mass)])
        low, high = ((reached < limit[:, None]).sum(axis=1) for limit in wanted)
        self.ir_low[rows] = np.where(wanted[0] > 0, self._radius[np.minimum(low, len(total))], 0.0)
        self.ir_high[rows] = np.append(self._radius, math.inf)[high]

        first, second = self._ends
        own = weights[:, first]
        if self._power:
            partner = (weights**self._power / math.gamma(1 + self._power))[:, second]
            own = np.where(first == second, own, own * partner)
        beyond = np.cumsum(own[:, ::-1], axis=1)[:, ::-1]  # (rows, pairs): of this pair and above
        beyond = np.append(beyond, np.zeros((len(own), 1)), axis=1)
        mass, each = self._unseen_pairs * unseen, np.arange(len(own))
        for found, ir, hits in (
            (self._sr_low, self.ir_high[rows], 0.0),
            (self._sr_high, self.ir_low[rows], mass),
        ):
            at = np.searchsorted(self._distance, ir + self._margin, "right")
            found[rows] = (beyond[each, at] + hits) / (beyond[:, 0] + mass)


def _partner_power(
    separated: Bool[np.ndarray, "pairs"], ends: Int64[np.ndarray, "2 pairs"]
) -> float:
    """To which power of its trajectory's weight a partner counts in its pairs, 0 to 1.

    At the power s a resampled sum has the variance of S + s T squared, S and T a trajectory's sums
    over pairs that it begins and ends. That variance is made the dyadic cluster-robust one (Aronow,
    Samii and Assenova 2015), on average over the pairs separated and the distances' median split.
    """
    size = int(ends.max()) + 1
    crossing = np.where(ends[0] == ends[1], 0.0, 1.0)

    def power(hits: Bool[np.ndarray, "pairs"]) -> float:
        off = hits - hits.mean()
        begun, ended = np.bincount(ends[0], off, size), np.bincount(ends[1], off * crossing, size)
        square, middle = float(ended @ ended), float(begun @ ended)
        if not square:
            return 0.0
        missing = dyadic_variance(off, ends) - float(begun @ begun)
        root = math.sqrt(max(0.0, middle**2 + square * missing))
        return min(1.0, max(0.0, (root - middle) / square))

    # The distances are in order.
    found = (power(separated) + power(np.arange(len(separated)) >= len(separated) / 2)) / 2
    return max(found, min(1.0, math.sqrt(_FEW_PARTNERS / effective_groups(ends[1]))))

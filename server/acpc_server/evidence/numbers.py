"""Raw IR, relative IR and SR with bounds at any level, all from the same weights.

Each resample weighs what is drawn, and one more of it that no sample holds: for one end its values
are the worst there can be, for the other the best. New trajectories weigh exponentially: of values
between 0 and 1 that is Gaffke's bound of a mean, of a share that of Clopper and Pearson, and of a
quantile the order statistics. The windows of a dataset are counted by the Polya posterior: of a
share that is the exact hypergeometric bound, and where all are measured nothing is left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from acpc.contract import EvidenceOptions, Population, ScoreProtocol, relative_ir
from acpc.evidence import (
    FEW_OF_ALL,
    CheckpointSample,
    Resampled,
    Weights,
    draw_weights,
    dyadic_variance,
    effective_groups,
    groups,
    sizes_by_rank,
)
from jaxtyping import Bool, Float64, Int64

from acpc_server.evidence import exact
from acpc_server.numerics import Check, go_on

_CLUSTERED = "joint weights of trajectories, one of them unseen"
METHODS = {
    Population.SERVER_DEFAULT: _CLUSTERED,
    Population.DATASET: "joint counts of windows, one of them unseen; exact of raw IR",
    Population.TRAJECTORIES: _CLUSTERED,
}
FEW_PAIRS = 30  # fewer pairs than these have a warning
_FEW_PARTNERS = 5
"""So few effective partners are the sample; of four times as many each has half its weight."""
_PARTNERS_MATTER = 1.645
"""Standard errors by which pairs with a common partner agree where partners decide: 5 %."""


@dataclass(frozen=True)
class Numbers:
    """Numbers of a checkpoint and its reference; None without one."""

    count: int  # what was drawn: windows or trajectories
    pairs: int  # anchors that have a partner
    windows: int | None  # of which windows were drawn; None: trajectories were, or it is not known
    dataset: bool  # whether windows were drawn
    unseen: Float64[np.ndarray, "resamples"]  # share of the population that is like nothing drawn
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

        Of the population that the options name; new trajectories where they name none.
        FailedPrecondition where the reference's raw IR is 0.
        """
        dataset = options.population is Population.DATASET
        group = groups(checkpoint, options.population)
        windows = checkpoint.windows if dataset else None
        own = _Side(checkpoint, group, protocol, options, windows)
        other = own
        if reference is not None and reference is not checkpoint:
            other = _Side(reference, group, protocol, options, windows)
        unseen = np.empty(options.resamples)
        for drawn in draw_weights(group, options, windows=windows):
            check()
            for side in {id(side): side for side in (own, other)}.values():
                unseen[drawn.rows] = side.resample(drawn)
        count, pairs = int(group.max()) + 1, int(checkpoint.eligible.sum())
        unseen.sort()
        if reference is None:
            return cls(count, pairs, windows, dataset, unseen, own.ir_raw(), own.sr())
        ratio = relative_ir(own.radius_at, other.radius_at)
        low, high = np.ones((2, options.resamples))
        if other is not own:
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                low = np.nan_to_num(own.ir_low / other.ir_high, nan=0.0, posinf=math.inf)
                high = np.nan_to_num(own.ir_high / other.ir_low, nan=math.inf, posinf=math.inf)
        relative = own.resampled(ratio, low, high)
        raw, sr = (own.ir_raw(), own.sr()), (other.ir_raw(), other.sr())
        return cls(count, pairs, windows, dataset, unseen, *raw, relative, *sr)


class _Side:
    """One checkpoint's radii and distances in order, and what resamples make of them."""

    def __init__(
        self,
        sample: CheckpointSample,
        group: Int64[np.ndarray, "n"],
        protocol: ScoreProtocol,
        options: EvidenceOptions,
        windows: int | None,
    ) -> None:
        self._quantile, self._margin = protocol.quantile, protocol.margin
        self._alpha, self._resamples = 1 - options.confidence, options.resamples
        self._dataset = options.population is Population.DATASET
        self._windows, self._count = windows, len(group)
        self._counted = windows is not None and windows <= FEW_OF_ALL * len(group)
        self._method = METHODS[options.population]
        order = np.argsort(sample.radius, kind="stable")
        self._radius, self._group = sample.radius[order], group[order]
        self._sizes = np.bincount(group)
        self.radius_at = float(np.quantile(sample.radius, protocol.quantile))
        pairs = np.flatnonzero(sample.eligible)
        pairs = pairs[np.argsort(sample.distance[pairs], kind="stable")]
        self._distance = sample.distance[pairs]
        self._ends = np.stack([group[pairs], group[sample.partner[pairs]]])
        size = int(group.max()) + 1
        self._begun, self._ended = (np.bincount(end, minlength=size) for end in self._ends)
        separated = self._distance > self.radius_at + self._margin
        self._separated = float(separated.mean())
        self._power = _partner_power(separated, self._ends)
        self.ir_low, self.ir_high, self._sr_low, self._sr_high = np.empty((4, options.resamples))

    def resampled(
        self,
        point: float,
        low: Float64[np.ndarray, "resamples"],
        high: Float64[np.ndarray, "resamples"],
        most: float = math.inf,
        one_sided: bool = False,
    ) -> Resampled:
        """Return a number with its resamples; itself alone where all windows are measured."""
        if self._windows is not None and self._windows <= self._count:
            low = high = np.full(self._resamples, point)
        low, high = np.sort(low), np.sort(high)
        return Resampled(point, low, high, self._method, most=most, one_sided=one_sided)

    def ir_raw(self) -> Resampled:
        low, high = self.ir_low, self.ir_high
        if self._dataset:
            low, high = exact.quantile_bounds(
                self._radius, self._quantile, self._windows, self._resamples
            )
        return self.resampled(self.radius_at, low, high)

    def sr(self) -> Resampled:
        """SR; all error is below where IR's upper end, of as much, leaves all pairs separated."""
        limit = self.ir_raw().upper(2 * self._alpha) + self._margin
        firm, low = bool(self._distance[0] > limit), self._sr_low
        if firm and self._dataset:
            pairs = len(self._distance)
            among = self._windows and round(pairs * (self._windows / self._count) ** 2)
            plain, low = (
                exact.all_of(pairs, worth, among, self._resamples) for worth in (pairs, self._worth)
            )
            far = 1 - exact.reached(self._distance, limit, self._worth)
            low = np.minimum(plain, np.maximum(low, far))
        return self.resampled(self._separated, low, self._sr_high, most=1.0, one_sided=firm)

    @property
    def _worth(self) -> float:
        """As many pairs with partners of their own."""
        pairs, partners = self._ends.shape[1], effective_groups(self._ends[1])
        few = min(1.0, (_FEW_PARTNERS / partners) ** 2)
        matter = max(few, _partners_matter(self._ends))
        return float(pairs / (1 + matter * max(0.0, pairs / partners - 1)))

    def resample(self, drawn: Weights) -> Float64[np.ndarray, "rows"]:
        """Fill in these rows: IR and, beyond it, SR, with the unseen group at either end.

        Returns its share of the anchors.
        """
        rows, weights, unseen, rank = drawn
        q = self._quantile
        reached = np.cumsum(weights[:, self._group], axis=1)
        total, extra = reached[:, -1], unseen * sizes_by_rank(self._sizes, rank)
        wanted = np.stack([q * total - (1 - q) * extra, q * (total + extra)])
        low, high = ((reached < limit[:, None]).sum(axis=1) for limit in wanted)
        self.ir_low[rows] = np.where(
            wanted[0] > 0, self._radius[np.minimum(low, len(self._radius) - 1)], 0.0
        )
        self.ir_high[rows] = np.append(self._radius, math.inf)[high]

        first, second = self._ends
        if self._counted and self._windows is not None:
            weights, unseen = _of_pairs(weights, unseen, self._windows / self._count)
        own = weights[:, first]
        if self._power:
            partner = (weights**self._power / math.gamma(1 + self._power))[:, second]
            own = np.where(first == second, own, own * partner)
        beyond = np.cumsum(own[:, ::-1], axis=1)[:, ::-1]  # (rows, pairs): of this pair and above
        beyond = np.append(beyond, np.zeros((len(own), 1)), axis=1)
        mass, each = self._pairs_of_unseen(rank) * unseen, np.arange(len(own))
        for found, ir, hits in (
            (self._sr_low, self.ir_high[rows], 0.0),
            (self._sr_high, self.ir_low[rows], mass),
        ):
            at = np.searchsorted(self._distance, ir + self._margin, "right")
            found[rows] = (beyond[each, at] + hits) / (beyond[:, 0] + mass)
        share: np.ndarray = extra / (total + extra)
        return share

    def _pairs_of_unseen(self, rank: Float64[np.ndarray, "rows"]) -> Float64[np.ndarray, "rows"]:
        """Pairs in which the unseen group decides; one that it ends counts the partner's power.

        A window as a random one drawn that is in any, in the weightier of its roles; a trajectory
        as a random pair's, in both.
        """
        if not self._dataset:
            return sizes_by_rank(self._begun, rank) + self._power * sizes_by_rank(self._ended, rank)
        pairs = np.sort(np.maximum(self._begun, self._power * self._ended))
        pairs = pairs[pairs > 0]
        found: np.ndarray = pairs[(rank * len(pairs)).astype(np.int64)]
        return found


def _of_pairs(
    weights: Float64[np.ndarray, "rows n"], unseen: Float64[np.ndarray, "rows"], mean: float
) -> tuple[Float64[np.ndarray, "rows n"], Float64[np.ndarray, "rows"]]:
    """Windows' counts as weights in pairs: 1 on average, so that those of both ends multiply.

    A pair is drawn as often as both its ends are: it deviates by the root of 1 + n/N more.
    """
    more = math.sqrt(1 + 1 / mean)
    return 1 + (weights / mean - 1) * more, unseen / mean * more


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


def _partners_matter(ends: Int64[np.ndarray, "2 pairs"]) -> float:
    """How much pairs with a common partner agree, whose distances are in order; 0 if by chance."""
    pairs = ends.shape[1]
    off = np.where(np.arange(pairs) >= pairs / 2, 1.0, -1.0)
    shared = np.bincount(ends[1])
    among = float((shared * (shared - 1.0)).sum()) / 2
    agree = (float((np.bincount(ends[1], off) ** 2).sum()) - pairs) / 2
    if agree <= _PARTNERS_MATTER * math.sqrt(among):
        return 0.0
    return float(min(1.0, agree / among))

"""The paper's quantities as plain float64 loops, written from its text alone.

Slow on purpose and free of the product's code: tests compare the server's answers with these.
Latents of one rollout are (H, dim); a batch is a sequence of them.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from acpc.arrays import NDArray
from numpy.typing import ArrayLike

Array = NDArray[np.float64]


def norm(vector: ArrayLike) -> float:
    total = 0.0
    for value in np.asarray(vector, dtype=np.float64).ravel():
        total += float(value) * float(value)
    return math.sqrt(total)


def between(a: ArrayLike, b: ArrayLike) -> float:
    """Euclidean distance, all axes stacked into one vector."""
    return norm(np.asarray(a, dtype=np.float64) - np.asarray(b, dtype=np.float64))


def quantile(values: Sequence[float], q: float) -> float:
    """Linear interpolation between order statistics."""
    ordered = sorted(float(v) for v in values)
    position = q * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (position - low) * (ordered[high] - ordered[low])


def uniform(horizon: int) -> list[float]:
    return [1 / horizon] * horizon


def step_distances(clean: ArrayLike, perturbed: ArrayLike) -> list[float]:
    return [between(a, b) for a, b in zip(np.asarray(clean), np.asarray(perturbed), strict=True)]


def acpc(clean: ArrayLike, perturbed: ArrayLike, weights: Sequence[float]) -> float:
    """Eq. acpc-h."""
    distances = step_distances(clean, perturbed)
    return math.sqrt(sum(w * d * d for w, d in zip(weights, distances, strict=True)))


def encoder_shift(clean: ArrayLike, perturbed: ArrayLike) -> float:
    """||z - z~|| over the stacked history."""
    return between(clean, perturbed)


def prediction_error(rollout: ArrayLike, observed: ArrayLike, weights: Sequence[float]) -> float:
    """e_h of Prop. target-free-error-drift, through the weighted rollout map."""
    root = np.sqrt(np.asarray(weights, dtype=np.float64))[:, None]
    return between(root * np.asarray(rollout), root * np.asarray(observed))


def motion_scale(observed: ArrayLike) -> float:
    """Eq. clean-transition-scale for one anchor; observed is (H + 1, dim), u_0 first."""
    frames = np.asarray(observed, dtype=np.float64)
    return quantile([between(frames[k], frames[k - 1]) for k in range(1, len(frames))], 0.5)


def mean_radius(draw_acpc: Sequence[float], scale: float) -> float:
    """R-bar of Eq. normalized-same-state-radius for one anchor."""
    return sum(value / (scale + 1e-8) for value in draw_acpc) / len(draw_acpc)


def means(draw_radius: Sequence[Sequence[float]]) -> list[float]:
    return [sum(row) / len(row) for row in draw_radius]


def invariance_radius(radii: Sequence[float], q: float = 0.90) -> float:
    """Eq. ir-raw from one mean radius per anchor."""
    return quantile(radii, q)


def median_split_labels(features: ArrayLike) -> list[int]:
    """Bit f is 1 when feature f lies strictly above its median."""
    table = np.asarray(features, dtype=np.float64)
    labels = [0] * len(table)
    for column in range(table.shape[1]):
        middle = quantile(table[:, column].tolist(), 0.5)
        for row in range(len(table)):
            if table[row, column] > middle:
                labels[row] += 2**column
    return labels


def neighbourhood_radius(states: ArrayLike, q: float = 0.35) -> float:
    """d_0.35 over every ordered pair of different anchors."""
    rows = np.asarray(states, dtype=np.float64)
    n = len(rows)
    return quantile([between(rows[i], rows[j]) for i in range(n) for j in range(n) if i != j], q)


def pairing(states: ArrayLike, labels: Sequence[int], q: float = 0.35) -> tuple[list[int], float]:
    """Partner j(i) of each anchor, -1 where skipped, and the radius."""
    rows = np.asarray(states, dtype=np.float64)
    radius = neighbourhood_radius(rows, q)
    partners = []
    for i in range(len(rows)):
        best, best_distance = -1, math.inf
        for j in range(len(rows)):
            distance = between(rows[i], rows[j])
            if labels[j] != labels[i] and distance <= radius and distance < best_distance:
                best, best_distance = j, distance
        partners.append(best)
    return partners, radius


def different_state_distance(
    rollout: ArrayLike, partner_rollout: ArrayLike, weights: Sequence[float], scale: float
) -> float:
    """Eq. different-state-distance; both rollouts under the anchor's actions."""
    return acpc(rollout, partner_rollout, weights) / (scale + 1e-8)


def separation_rate(distances: Sequence[float], ir_raw: float, margin: float = 0.10) -> float:
    """Eq. sr; NaN marks a skipped anchor."""
    eligible = [d for d in distances if not math.isnan(d)]
    return sum(d > ir_raw + margin for d in eligible) / len(eligible)


def relative_ir(ir_raw: float, reference_ir_raw: float) -> float:
    """Eq. ir-relative."""
    return ir_raw / reference_ir_raw


def screen_score(ir_relative: float, sr: float, t_ir: float = 0.30, t_sr: float = 0.95) -> float:
    """Eq. ir-sr-score."""
    ir_term = (t_ir - ir_relative) / (abs(t_ir) + 1e-12)
    sr_term = (sr - t_sr) / (abs(t_sr) + 1e-12)
    return ir_term if ir_term < sr_term else sr_term


def verdict(ir_relative: float | None, sr: float, t_ir: float = 0.30, t_sr: float = 0.95) -> str:
    """The screen's outcome; "inconclusive" with an unknown relative IR and a good SR."""
    if sr < t_sr:
        return "failed"
    if ir_relative is None:
        return "inconclusive"
    return "passed" if ir_relative <= t_ir else "failed"


def median_latent_distance(latents: ArrayLike) -> float:
    rows = np.asarray(latents, dtype=np.float64)
    n = len(rows)
    return quantile([between(rows[i], rows[j]) for i in range(n) for j in range(i)], 0.5)


@dataclass(frozen=True, kw_only=True)
class Side:
    """What the numbers of one checkpoint are made of, anchor by anchor, and its thresholds."""

    draw_radius: Sequence[Sequence[float]]  # R_i^(m)
    distance: Sequence[float]  # NaN where skipped
    latents: ArrayLike  # of the last observed frame
    quantile: float = 0.90
    margin: float = 0.10
    t_ir: float = 0.30
    t_sr: float = 0.95

    @property
    def ir_raw(self) -> float:
        return invariance_radius(means(self.draw_radius), self.quantile)

    @property
    def sr(self) -> float:
        return separation_rate(self.distance, self.ir_raw, self.margin)

    @property
    def apart(self) -> list[float]:
        return [d for d in self.distance if not math.isnan(d)]

    def score(self, base: "Side") -> float:
        return screen_score(relative_ir(self.ir_raw, base.ir_raw), self.sr, self.t_ir, self.t_sr)


NUMBERS: dict[str, Callable[[Side, Side], float]] = {
    "ir_raw": lambda own, _: own.ir_raw,
    "sr": lambda own, _: own.sr,
    "ir_relative": lambda own, base: relative_ir(own.ir_raw, base.ir_raw),
    "score": lambda own, base: own.score(base),
    "delta_score": lambda own, base: own.score(base) - base.score(base),
    "anchors": lambda own, _: len(own.distance),
    "eligible": lambda own, _: len(own.apart),
    "skipped": lambda own, _: len(own.distance) - len(own.apart),
    "median_latent_distance": lambda own, _: median_latent_distance(own.latents),
    "different_label_distance": lambda own, _: quantile(own.apart, 0.5),
}
"""Each number of a score that follows from both sides' measurements, the reference's the second."""


def cost_bounds(
    clean: ArrayLike, perturbed: ArrayLike, goal: ArrayLike, moved: ArrayLike | None = None
) -> tuple[Array, Array, Array, Array]:
    """C, C~, r and b of Prop. exact-cost-certificate for one view, with the summed square.

    A view whose goal is ``moved`` adds how far to r in b.
    """
    moved = goal if moved is None else moved
    columns: list[tuple[float, float, float, float]] = []
    for x, y in zip(np.asarray(clean), np.asarray(perturbed), strict=True):
        p, q, r = between(x, goal), between(y, moved), between(x, y)
        columns.append((p * p, q * q, r, (r + between(goal, moved)) * (p + q)))
    table = np.array(columns, dtype=np.float64)
    return table[:, 0], table[:, 1], table[:, 2], table[:, 3]


def elites(costs: Sequence[float], count: int) -> list[int]:
    """The lowest costs, lowest first, lower index first among equals."""
    return sorted(range(len(costs)), key=lambda j: (costs[j], j))[:count]


def elite_margin(costs: Sequence[float], bounds: Sequence[float], count: int) -> float:
    """Left side of Eq. elite-certificate-main; with count 1, of Eq. top1-certificate-main."""
    chosen = elites(costs, count)
    return min(
        costs[j] - costs[i] - bounds[j] - bounds[i]
        for i in chosen
        for j in range(len(costs))
        if j not in chosen
    )

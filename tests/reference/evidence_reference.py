"""Slow, independent versions of what docs/statistics.md says, as plain loops in float64."""

import math
from collections.abc import Callable

import numpy as np
from scipy import optimize, stats


def weights(group: list[int], resamples: int, seed: int) -> list[list[float]]:
    """A weight per trajectory, and that of all anchors of one more, of each resample."""
    sizes = [group.count(g) for g in set(group)]
    groups = worth(sizes)
    wider = (stats.t.ppf(0.975, groups - 1) / stats.norm.ppf(0.975)) ** 2
    shape = (groups - 1) / groups / wider
    generator = np.random.default_rng(seed)
    drawn = generator.standard_gamma(shape, (resamples, len(sizes) + 1))
    ranks = generator.random(resamples)
    return [
        [*map(float, row[:-1]), float(row[-1]) * size_at(sizes, rank)]
        for row, rank in zip(drawn, ranks, strict=True)
    ]


def size_at(sizes: list[int], rank: float) -> int:
    """Size of the group of that member, in order of the groups' sizes."""
    members = [size for size in sorted(sizes) for _ in range(size)]
    return members[int(rank * len(members))]


def weighted_quantile(values: list[float], group: list[int], row: list[float], q: float) -> float:
    """Where the weights, from the smallest anchor on, reach q of all; the last lies above all.

    The last is that of all anchors of one trajectory more.
    """
    order = sorted(range(len(values)), key=lambda i: values[i])
    total = sum(row[group[i]] for i in order) + row[-1]
    reached, before = 0.0, values[order[0]]
    for i in order:
        step = row[group[i]]
        if reached + step >= q * total:
            part = min(1.0, max(0.0, (q * total - reached) / step))
            return before + part * (values[i] - before)
        reached, before = reached + step, values[i]
    return math.inf


def joint_bounds(
    radii: tuple[list[float], list[float]], distance: list[float], partner: list[int],
    group: list[int], q: float, margin: float, resamples: int, seed: int, alpha: float,
) -> dict[str, tuple[float, float]]:  # fmt: skip
    """Intervals of raw IR, relative IR and SR from the same weights, an unseen trajectory's too."""
    count, anchors = len(set(group)), len(group)
    pairs = [i for i in range(anchors) if partner[i] >= 0]
    ends = [(group[i], group[partner[i]]) for i in pairs]
    limit = float(np.quantile(radii[0], q)) + margin
    power = partner_power([distance[i] for i in pairs], limit, ends)
    generator = np.random.default_rng(seed)
    drawn = generator.standard_gamma(1.0, (resamples, count + 1))
    ranks = generator.random(resamples)
    sizes = [[of.count(g) for g in set(of)] for of in (group, *map(list, zip(*ends, strict=True)))]
    found: dict[str, list[tuple[float, float]]] = {"ir_raw": [], "ir_relative": [], "sr": []}

    def quantile(values: list[float], row: np.ndarray, extra: float) -> float:
        """Of the weighted values, the unseen trajectory's being ``extra``."""
        held = [(value, row[g]) for value, g in zip(values, group, strict=True)]
        held = sorted([*held, (extra, row[-1] * long)])
        total, reached = sum(weight for _, weight in held), 0.0
        for value, weight in held:
            reached += weight
            if reached >= q * total:
                return value
        return held[-1][0]

    for row, rank in zip(drawn, ranks, strict=True):
        long, begun, ended = (size_at(of, rank) for of in sizes)
        low, high = (quantile(radii[0], row, extra) for extra in (0.0, math.inf))
        least, most = (quantile(radii[1], row, extra) for extra in (0.0, math.inf))
        found["ir_raw"].append((low, high))
        found["ir_relative"].append((low / most, high / least if least else math.inf))
        weights = [
            row[a] * (1.0 if a == b else row[b] ** power / math.gamma(1 + power)) for a, b in ends
        ]
        unseen = row[-1] * (begun + power * ended)
        shares = [
            sum(w for w, i in zip(weights, pairs, strict=True) if distance[i] > ir + margin)
            for ir in (high, low)
        ]
        total = sum(weights) + unseen
        found["sr"].append((shares[0] / total, (shares[1] + unseen) / total))
    rank = math.floor(alpha / 2 * (resamples + 1))
    return {
        name: (sorted(low for low, _ in of)[rank - 1], sorted(high for _, high in of)[-rank])
        for name, of in found.items()
    }


def partner_power(distance: list[float], limit: float, ends: list[tuple[int, int]]) -> float:
    """The power at which resampled pairs vary as the dyadic variance says, by bisection."""

    def of(hits: list[float]) -> float:
        mean = sum(hits) / len(hits)
        begun, ended = ({g: 0.0 for pair in ends for g in pair} for _ in range(2))
        for hit, (a, b) in zip(hits, ends, strict=True):
            begun[a] += hit - mean
            ended[b] += (hit - mean) * (a != b)
        wanted = pair_variance(hits, ends)

        def short(s: float) -> bool:
            return sum((begun[g] + s * ended[g]) ** 2 for g in begun) < wanted

        low, high = 0.0, 1.0
        if short(1.0):
            return 1.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if short(middle) else (low, middle)
        return low

    split = sorted(distance)[(len(distance) + 1) // 2]
    both = of([float(d > limit) for d in distance]), of([float(d >= split) for d in distance])
    at_end = [b for _, b in ends]
    few = math.sqrt(5 / worth([at_end.count(g) for g in set(at_end)]))
    return max(sum(both) / 2, min(1.0, few))


def pair_variance(hits: list[float], ends: list[tuple[int, int]]) -> float:
    """Variance of the number of hits, of pairs of trajectories: all products that share one."""
    mean = sum(hits) / len(hits)
    total = 0.0
    for i, (a, b) in enumerate(ends):
        for j, (c, d) in enumerate(ends):
            if {a, b} & {c, d}:
                total += (hits[i] - mean) * (hits[j] - mean)
    return total


def change_bounds(
    change: Callable[[float, float], float], first: list[float], second: list[float],
    group: list[int], q: float, resamples: int, seed: int, alpha: float,
) -> tuple[float, float]:  # fmt: skip
    """The interval of the second quantile minus the first, or over it, on the same anchors."""
    changes = [
        change(weighted_quantile(second, group, row, q), weighted_quantile(first, group, row, q))
        for row in weights(group, resamples, seed)
    ]
    rank = math.floor(alpha / 2 * (resamples + 1))
    low = sorted(-math.inf if math.isnan(value) else value for value in changes)
    high = sorted(math.inf if math.isnan(value) else value for value in changes)
    return low[rank - 1], high[-rank]


def worth(sizes: list[int]) -> float:
    """As many groups of one size."""
    return sum(sizes) ** 2 / sum(size**2 for size in sizes)


def paired_share_bounds(
    radii: tuple[list[float], list[float]], distances: tuple[list[float], list[float]],
    partner: list[int], group: list[int], q: float, margin: float, resamples: int, seed: int,
    alpha: float,
) -> tuple[float, float, float]:  # fmt: skip
    """The second SR minus the first, and its interval."""
    pairs = [i for i in range(len(partner)) if partner[i] >= 0]
    ends = [(group[i], group[partner[i]]) for i in pairs]
    limits = [float(np.quantile(radius, q)) + margin for radius in radii]
    change = [
        float(distances[1][i] > limits[1]) - float(distances[0][i] > limits[0]) for i in pairs
    ]
    apart = [distances[1][i] - distances[0][i] for i in pairs]
    middle = float(np.median(apart))
    n, point = len(pairs), sum(change) / len(pairs)

    def design(values: list[float]) -> float:
        mean = sum(values) / n
        squares = sum((value - mean) ** 2 for value in values)
        return pair_variance(values, ends) / squares if squares else 0.0

    split = design([float(value > middle) for value in apart])
    both = (split + design(change)) / 2 if len(set(change)) > 1 else split
    trials = n / max(1.0, both)
    at_ends = [g for pair in ends for g in pair]
    groups = worth([at_ends.count(g) for g in set(at_ends)])
    wider = (stats.t.ppf(1 - alpha / 2, groups - 1) / stats.norm.ppf(1 - alpha / 2)) ** 2
    bells: list[tuple[float, float] | None] = []
    for row in weights(group, resamples, seed):
        at = [weighted_quantile(radius, group, row, q) + margin for radius in radii]
        if math.inf in at:
            bells.append(None)
            continue
        moves = [float(distances[1][i] > at[1]) - float(distances[0][i] > at[0]) for i in pairs]
        up, down = ((moves.count(to) / n * trials + 1) / (trials + 2) for to in (1.0, -1.0))
        variance = (up + down - (up - down) ** 2) / (trials + 2)
        bells.append((up - down, math.sqrt(variance * wider)))

    def below(x: float, unseen: float) -> float:
        """Share of the resamples below x."""
        shares = [stats.norm.cdf(x, *bell) if bell else unseen for bell in bells]
        return float(sum(shares)) / resamples

    lower = optimize.brentq(lambda x: below(x, 1.0) - alpha / 2, -2, 2, xtol=1e-12)
    upper = optimize.brentq(lambda x: 1 - alpha / 2 - below(x, 0.0), -2, 2, xtol=1e-12)
    return point, min(point, lower), max(point, upper)

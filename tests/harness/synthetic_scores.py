"""Draws synthetic scores whose true IR, relative IR and SR are known, to test intervals on."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
from acpc.contract import EvidenceOptions, ScoreProtocol, Thresholds
from acpc.evidence import paired_differences
from acpc_server.evidence import CheckpointSample
from acpc_server.evidence.confident import ConfidentVerdict
from acpc_server.evidence.numbers import Numbers

NEIGHBOURHOOD, QUANTILE, MARGIN, DRAWS = 0.35, 0.9, 0.1, 5
Trio = tuple[CheckpointSample, CheckpointSample, np.ndarray]


@dataclass(frozen=True)
class Population:
    """What anchors are drawn from.

    Radii are log-normal, with a part that the anchors of a trajectory share and a part that
    candidate and reference share. Distances of pairs have a part of either end, its anchor's and
    its trajectory's, so that pairs with a common partner depend on each other.

    Attributes:
        anchors: Anchors n of an experiment.
        per_trajectory: Anchors of each trajectory.
        within: Share of the variance that anchors of one trajectory have in common.
        spread: Standard deviation of the log radius.
        common: Correlation of the log radii of candidate and reference.
        tails: Degrees of freedom of the log radius' distribution; infinite: normal.
        draw_spread: Standard deviation of a draw's log radius around its anchor's.
        radius: Median radius of the candidate; the reference has 1.
        distance: Median distance of a pair.
        distance_spread: Standard deviation of its logarithm.
        own_distance: Standard deviation of the part of it that each checkpoint of ``trio`` has.
        bad: Share of trajectories in which the candidate is fragile.
        bad_radius: By what their radii are multiplied.
        bad_distance: By what their distances are.
        hubs: Anchors that are the partners of all; 0: the nearest are.
    """

    anchors: int = 100
    per_trajectory: int = 1
    within: float = 0.0
    spread: float = 0.35
    common: float = 0.6
    tails: float = np.inf
    draw_spread: float = 0.2
    radius: float = 0.2
    distance: float = 1.0
    distance_spread: float = 0.5
    own_distance: float = 0.2
    bad: float = 0.0
    bad_radius: float = 5.0
    bad_distance: float = 0.3
    hubs: int = 0


def experiment(
    population: Population, generator: np.random.Generator
) -> tuple[CheckpointSample, CheckpointSample]:
    count = population.anchors
    trajectory = np.arange(count) // population.per_trajectory

    def noise() -> np.ndarray:
        """Of standard deviation 1, a part of it shared within a trajectory."""
        shared = generator.standard_normal(trajectory[-1] + 1)[trajectory]
        own = generator.standard_normal(count)
        return np.sqrt(population.within) * shared + np.sqrt(1 - population.within) * own

    partner = partners(generator, trajectory, population.hubs)
    bad = (generator.random(trajectory[-1] + 1) < population.bad)[trajectory]
    both, apart = noise(), (noise(), noise())
    heavy = 1.0
    if np.isfinite(population.tails):
        heavy = np.sqrt(population.tails / generator.chisquare(population.tails, count))
    logs = [np.sqrt(population.common) * both + np.sqrt(1 - population.common) * a for a in apart]
    ends, own = noise(), generator.standard_normal(count)
    log_distance = population.distance_spread * (ends + ends[partner] + own) / np.sqrt(3)
    distance = np.where(partner < 0, np.nan, population.distance * np.exp(log_distance))
    samples = []
    for scale, log in zip((population.radius, 1.0), logs, strict=True):
        draws = generator.standard_normal((count, DRAWS))
        radius = scale * np.exp(population.spread * heavy * log)
        radius = (radius[:, None] * np.exp(population.draw_spread * draws)).mean(axis=1)
        samples.append(CheckpointSample(radius, distance, partner, trajectory))
    own, reference = samples
    worse = np.where(bad, [[population.bad_radius], [population.bad_distance]], 1.0)
    own = replace(own, radius=own.radius * worse[0], distance=own.distance * worse[1])
    return own, reference


def partners(generator: np.random.Generator, trajectory: np.ndarray, hubs: int = 0) -> np.ndarray:
    """The nearest anchor with another label within reach, by the paper's rule; -1 without one.

    With ``hubs`` one of so many anchors at random, for four fifths of the anchors.
    """
    count = len(trajectory)
    if hubs:
        partner = generator.choice(generator.choice(count, hubs, replace=False), count)
        alone = (partner == np.arange(count)) | (generator.random(count) < 0.2)
        return np.where(alone, -1, partner)
    places = generator.standard_normal((trajectory[-1] + 1, 2))[trajectory]
    places = places + 0.3 * generator.standard_normal(places.shape)
    label = (places > np.median(places, axis=0)) @ [1, 2]
    apart = np.linalg.norm(places[:, None] - places, axis=2)
    reach = np.quantile(apart[~np.eye(len(places), dtype=bool)], NEIGHBOURHOOD)
    allowed = (label[:, None] != label) & (apart <= reach)
    nearest = np.where(allowed, apart, np.inf).argmin(axis=1)
    return np.where(allowed.any(axis=1), nearest, -1)


@cache
def truth(population: Population, sets: int = 4000, seed: int = 1) -> dict[str, float]:
    """The numbers over so many independent sets of anchors.

    IR is that of all anchors together, and SR the share of all pairs beyond it: partners are the
    nearest of as many anchors as an experiment has.
    """
    generator = np.random.default_rng(seed)
    drawn = [experiment(population, generator) for _ in range(sets)]
    own, reference = (
        float(np.quantile(np.concatenate([pair[side].radius for pair in drawn]), QUANTILE))
        for side in (0, 1)
    )
    distance = np.concatenate([own.distance[own.eligible] for own, _ in drawn])
    return {
        "ir_raw": own,
        "reference_ir_raw": reference,
        "ir_relative": own / reference,
        "sr": float((distance > own + MARGIN).mean()),
    }


def with_sr(population: Population, sr: float, sets: int = 2000) -> Population:
    """The population with the median distance at which SR is so much."""
    generator = np.random.default_rng(2)
    drawn = [experiment(population, generator)[0] for _ in range(sets)]
    ir_raw = np.quantile(np.concatenate([own.radius for own in drawn]), QUANTILE)
    distance = np.concatenate([own.distance[own.eligible] for own in drawn])
    factor = (ir_raw + MARGIN) / np.quantile(distance, 1 - sr)
    return replace(population, distance=population.distance * float(factor))


def trio(population: Population, generator: np.random.Generator) -> Trio:
    """Two checkpoints on the same anchors, and the radii of the reference of both.

    The first has the reference's place in ``experiment``, so its median radius is 1.
    """
    second, first = experiment(population, generator)

    def own(sample: CheckpointSample) -> CheckpointSample:
        noise = population.own_distance * generator.standard_normal(population.anchors)
        return replace(sample, distance=sample.distance * np.exp(noise))

    noise = 0.2 * generator.standard_normal(population.anchors)
    reference = 3 * np.sqrt(first.radius * second.radius) * np.exp(noise)
    return own(first), own(second), reference


PAIRED_NUMBERS = ("ir_raw", "ir_ratio", "ir_relative", "sr")


def numbers_of(drawn: Sequence[Trio]) -> tuple[dict[str, float], dict[str, float]]:
    """Numbers of the first checkpoint in units of the second, and differences of both."""
    radii = [[one[0].radius, one[1].radius, one[2]] for one in drawn]
    first, second, reference = (
        float(np.quantile(np.concatenate(of), QUANTILE)) for of in zip(*radii, strict=True)
    )
    srs = [
        float(np.mean(np.concatenate([one[side].distance[one[side].eligible] for one in drawn])
                      > ir + MARGIN))
        for side, ir in enumerate((first, second))
    ]  # fmt: skip
    ratio, change = second / first, second - first
    return {"ir_raw": first, "ir_relative": 1 / ratio, "sr": srs[0]}, {
        "ir_raw": change, "ir_ratio": ratio, "ir_relative": change / reference,
        "sr": srs[1] - srs[0],
    }  # fmt: skip


@cache
def paired_truth(population: Population, sets: int = 3000, seed: int = 1) -> dict[str, float]:
    generator = np.random.default_rng(seed)
    return numbers_of([trio(population, generator) for _ in range(sets)])[1]


_BETTER = Population(radius=0.8, common=0.8)
PAIRED_POPULATIONS: dict[str, Callable[[], Population]] = {
    "alike": lambda: with_sr(Population(radius=1.0, common=0.9, own_distance=0.1), 0.95),
    "loosely paired": lambda: with_sr(replace(_BETTER, radius=1.0, common=0.3), 0.9),
    "better": lambda: with_sr(_BETTER, 0.95),
    "clustered, 40 of 5": lambda: with_sr(
        replace(_BETTER, anchors=200, per_trajectory=5, within=0.5), 0.9
    ),
    "clustered, 50 of 2": lambda: with_sr(replace(_BETTER, per_trajectory=2, within=0.8), 0.9),
    "heavy tails": lambda: with_sr(replace(_BETTER, tails=3, spread=0.6), 0.9),
    "near collapse": lambda: with_sr(replace(_BETTER, distance_spread=0.3, own_distance=0.05), 0.5),
    "all agree": lambda: replace(_BETTER, distance=20.0),
    "fragile in a tenth": lambda: with_sr(replace(_BETTER, bad=0.1), 0.9),
    "IR jumps": lambda: replace(_BETTER, bad=0.11, bad_radius=10.0, bad_distance=1.0, distance=3.0),
    "IR jumps, 50 trajectories of 2": lambda: replace(
        PAIRED_POPULATIONS["IR jumps"](), per_trajectory=2, within=0.5
    ),
    "300 anchors of 75": lambda: with_sr(
        replace(_BETTER, anchors=300, per_trajectory=4, within=0.5), 0.9
    ),
}


CLUSTERED = Population(per_trajectory=5, within=0.5)
IR_ALONE, SR_ALONE = {"bad_distance": 1.0}, {"bad_radius": 1.0}
# Share of fragile trajectories, trajectories of 100 anchors, SR, in what they are fragile.
BAD: list[tuple[float, int, float, str, dict[str, float]]] = [
    (0.1, 25, 0.9, "", {}),
    (0.1, 25, 0.95, "", {}),
    (0.1, 50, 0.9, "", {}),
    (0.2, 25, 0.8, "", {}),
    (0.1, 100, 0.9, "", {}),
    (0.02, 100, 0.98, "", {}),
    (0.05, 50, 0.95, "", {}),
    (0.3, 10, 0.7, "", {}),
    (0.1, 50, 0.9, " in IR alone", IR_ALONE),
    (0.1, 50, 0.9, " in SR alone", SR_ALONE),
]


def _with_bad(share: float, count: int, sr: float, other: dict[str, float]) -> Population:
    population = Population(per_trajectory=100 // count, within=0.3 * (count < 100), bad=share)
    return with_sr(replace(population, **other), sr)


POPULATIONS: dict[str, Callable[[], Population]] = {
    "plain": lambda: with_sr(Population(), 0.95),
    "clustered, 20 of 5": lambda: with_sr(CLUSTERED, 0.95),
    "clustered, SR 0.8": lambda: with_sr(CLUSTERED, 0.8),
    "clustered, 10 of 10": lambda: with_sr(Population(per_trajectory=10, within=0.3), 0.9),
    "heavy tails": lambda: with_sr(Population(tails=3, spread=0.6), 0.9),
    "near collapse": lambda: with_sr(Population(radius=0.001, distance_spread=0.3), 0.5),
    "almost all agree": lambda: with_sr(Population(distance_spread=0.3), 0.99),
    "all agree": lambda: Population(distance=20.0),
    "25 anchors": lambda: with_sr(Population(anchors=25), 0.9),
    "50 anchors of 25": lambda: with_sr(Population(50, per_trajectory=2, within=0.3), 0.95),
    "8 trajectories of 12": lambda: with_sr(Population(96, per_trajectory=12, within=0.6), 0.8),
    "300 anchors of 75": lambda: with_sr(Population(300, per_trajectory=4, within=0.5), 0.95),
    **{
        f"{100 * share:g} % bad of {count}{where}, SR {sr:g}": partial(
            _with_bad, share, count, sr, other
        )
        for share, count, sr, where, other in BAD
    },
    "6 hub partners, SR 0.5": lambda: with_sr(Population(hubs=6), 0.5),
}


def covered(
    draw: Callable[[np.random.Generator], tuple[CheckpointSample, CheckpointSample]],
    true: dict[str, float],
    experiments: int,
    options: EvidenceOptions,
    seed: int = 3,
) -> dict[str, float]:
    """How often the interval of each number holds it, and verdicts pass or fail.

    The truth lies on both thresholds, or on that of IR or of SR with the other one met: no
    experiment should be decided.
    """
    generator, protocol = np.random.default_rng(seed), ScoreProtocol()
    limits = {
        "both": Thresholds(true["ir_relative"] * (1 - 1e-9), min(1.0, true["sr"] * (1 + 1e-9))),
        "IR": Thresholds(true["ir_relative"] * (1 - 1e-9), true["sr"] / 2),
        "SR": Thresholds(3 * true["ir_relative"], min(1.0, true["sr"] * (1 + 1e-9))),
    }
    found = Counter({f"{ended}, {at}": 0 for ended in ("passed", "failed") for at in limits})
    for _ in range(experiments):
        numbers = Numbers.of(*draw(generator), protocol, options)
        for name, value in true.items():
            ends = getattr(numbers, name).interval(options.confidence)
            found[name] += ends.lower - 1e-12 <= value <= ends.upper + 1e-12
        for name, at in limits.items():
            verdict = ConfidentVerdict(numbers, at, 1 - options.confidence, protocol.quantile)
            found[f"{verdict.outcome()[0]}, {name}"] += 1
    return {name: times / experiments for name, times in found.items()}


def paired_covered(
    make: Callable[[np.random.Generator], Trio],
    true: dict[str, float],
    experiments: int,
    options: EvidenceOptions,
    seed: int = 3,
) -> dict[str, float]:
    """How often intervals of differences hold the truth."""
    generator, held = np.random.default_rng(seed), dict.fromkeys(PAIRED_NUMBERS, 0)
    for _ in range(experiments):
        found = paired_differences(*make(generator), ScoreProtocol(), options)
        for name in PAIRED_NUMBERS:
            change = found[name]
            assert change is not None
            held[name] += change[1].lower <= true[name] <= change[1].upper
    return {name: times / experiments for name, times in held.items()}

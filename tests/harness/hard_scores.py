"""Draws scores from populations that defeat simpler intervals, and from datasets known whole.

Trajectories of very unequal lengths, partners that dominate, numbers that jump in some share of
the trajectories; and finite worlds, of whose windows anchors are drawn without replacement as the
paper draws them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from acpc.contract import EvidenceOptions
from acpc.contract import Population as Of
from acpc.evidence import CheckpointSample
from scipy.spatial import cKDTree
from scipy.spatial.distance import pdist
from synthetic_scores import MARGIN, QUANTILE, Trio, numbers_of

SPREAD, SPREAD_APART = 0.35, 0.5


def trajectories(
    generator: np.random.Generator,
    lengths: np.ndarray,
    bad: tuple[np.ndarray, np.ndarray],
    *,
    median: tuple[float, float] = (0.2, 1.0),
    factors: tuple[float, float] = (5.0, 0.3),
    places: int = 0,
    of_partner: float = 1 / 3,
    apart: float = 1.0,
) -> Trio:
    """Two checkpoints and the radii of the reference of both, on all windows of trajectories.

    Args:
        generator: Of the random numbers.
        lengths: Windows of each trajectory.
        bad: In which trajectories each checkpoint is fragile.
        median: Median radius of each.
        factors: By what radii and distances are multiplied there.
        places: Anchors that are the partners of all; 0: any may be.
        of_partner: Share of the variance of the log distances that is the partner's.
        apart: Median distance of a pair.
    """
    trajectory = np.repeat(np.arange(len(lengths)), lengths)
    count, groups = len(trajectory), len(lengths)

    def noise() -> np.ndarray:
        shared = generator.standard_normal(groups)[trajectory]
        return np.sqrt(0.3) * shared + np.sqrt(0.7) * generator.standard_normal(count)

    common = noise()
    radii = [
        scale * np.exp(SPREAD * (np.sqrt(0.6) * common + np.sqrt(0.4) * noise()))
        for scale in median
    ]
    among = generator.choice(count, places or count, replace=False)
    partner = generator.choice(among, count)
    alone = (partner == np.arange(count)) | (generator.random(count) < 0.2)
    partner = np.where(alone, -1, partner)
    own, ends = noise(), noise()
    log = np.sqrt(of_partner) * ends[partner] + np.sqrt(1 - of_partner) * own
    samples = []
    for radius, fragile in zip(radii, bad, strict=True):
        worse = fragile[trajectory]
        distance = apart * np.exp(SPREAD_APART * log) * np.where(worse, factors[1], 1.0)
        distance = np.where(partner < 0, np.nan, distance)
        reaction = radius * np.where(worse, factors[0], 1.0)
        samples.append(CheckpointSample(reaction, distance, partner, trajectory))
    reference = 3 * np.sqrt(radii[0] * radii[1]) * np.exp(0.2 * generator.standard_normal(count))
    return samples[0], samples[1], reference


def _uneven(generator: np.random.Generator, count: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Lengths 1 to 40, most of them short, and which are bad: half of those of 30 or more."""
    lengths = np.floor(np.exp(generator.random(count) * np.log(41))).astype(int)
    return lengths, (lengths >= 30) & (generator.random(count) < 0.5)


def _alike(generator: np.random.Generator, count: int = 60) -> Trio:
    lengths, bad = _uneven(generator, count)
    return trajectories(generator, lengths, (bad, np.zeros(count, bool)))


def _places(generator: np.random.Generator) -> Trio:
    none = np.zeros(100, bool)
    one = np.ones(100, int)
    return trajectories(generator, one, (none, none), places=20, of_partner=0.9)


HARD: dict[str, Callable[[np.random.Generator], Trio]] = {
    "60 of lengths 1 to 40, half of the long ones bad": _alike,
    "100 of lengths 1 to 40, half of the long ones bad": lambda g: _alike(g, 100),
    "20 places, the partner dominates": _places,
}


def _fragile(generator: np.random.Generator) -> Trio:
    bad = generator.random(100) < 0.05
    none = np.zeros(100, bool)
    return trajectories(generator, np.where(bad, 10, 3), (none, bad), median=(1.0, 1.0), apart=3.0)


def _jumps(generator: np.random.Generator) -> Trio:
    bad = generator.random(100) < 0.11, generator.random(100) < 0.09
    return trajectories(
        generator, np.ones(100, int), bad, median=(1.0, 1.0), factors=(10.0, 1.0), apart=3.0
    )


HARD_PAIRS: dict[str, Callable[[np.random.Generator], Trio]] = {
    "long episodes fragile in the second": _fragile,
    "first jumps in 11 %, second in 9 %": _jumps,
}


@dataclass
class World:
    """All windows of a dataset: episodes wander through a plane.

    Radii and distances have parts of the place, the episode and the window; SR those of partners,
    too, which are the nearest among the windows drawn, by the paper's rule.
    """

    episodes: int = 60
    per_episode: int = 50
    of_partner: float = 1 / 3
    bad: float = 0.0
    apart: float = 1.0
    relative: float = 0.2
    seed: int = 1
    labels: int = 4  # 2: anchors at the one border are the partners of all

    def __post_init__(self) -> None:
        generator = np.random.default_rng(self.seed)
        self.windows = self.episodes * self.per_episode
        self.episode = np.repeat(np.arange(self.episodes), self.per_episode)
        start = generator.standard_normal((self.episodes, 1, 2))
        steps = 0.08 * generator.standard_normal((self.episodes, self.per_episode, 2))
        self.places = (start + steps.cumsum(axis=1)).reshape(-1, 2)

        def noise() -> np.ndarray:
            shared = generator.standard_normal(self.episodes)[self.episode]
            return np.sqrt(0.4) * shared + np.sqrt(0.6) * generator.standard_normal(self.windows)

        field = np.sin(2 * self.places @ generator.standard_normal((2, 3))).sum(axis=1) / 1.3
        common = noise()
        radii = [np.exp(SPREAD * (0.6 * common + 0.5 * field + 0.6 * noise())) for _ in range(2)]
        worse = (generator.random(self.episodes) < self.bad)[self.episode]
        radii[0] *= np.where(worse, 5.0, 1.0)
        at = [np.quantile(radius, QUANTILE) for radius in radii]
        self.radii = [self.relative * radii[0] / at[0], radii[1] / at[1]]
        self.ends, self.own, self.worse = noise(), noise(), np.where(worse, 0.3, 1.0)

    def draw(
        self, count: int, generator: np.random.Generator
    ) -> tuple[CheckpointSample, CheckpointSample]:
        """The checkpoint and its reference on so many windows, none of them twice."""
        drawn = generator.choice(self.windows, count, replace=False)
        places = self.places[drawn]
        label = (places > np.median(places, axis=0)) @ [1, self.labels - 2]
        partner = _partners(places, label)
        log = np.sqrt(self.of_partner) * self.ends[drawn][partner]
        log = log + np.sqrt(1 - self.of_partner) * self.own[drawn]
        distance = self.apart * np.exp(SPREAD_APART * log) * self.worse[drawn]
        distance = np.where(partner < 0, np.nan, distance)
        own, reference = (
            CheckpointSample(r[drawn], distance, partner, self.episode[drawn], windows=self.windows)
            for r in self.radii
        )
        return own, reference

    def truth(self, count: int, sr: float | None = None, draws: int = 1000) -> dict[str, float]:
        """Its numbers; SR is that of the pairs of so many windows, over as many draws of them.

        ``sr``: distances are first scaled so that SR is so much.
        """
        generator, limit = np.random.default_rng(7), self.relative + MARGIN
        drawn = [self.draw(count, generator)[0] for _ in range(draws)]
        distance = np.concatenate([own.distance[own.eligible] for own in drawn])
        if sr is not None:
            factor = float(limit / np.quantile(distance, 1 - sr))
            self.apart, distance = self.apart * factor, distance * factor
        share = float((distance > limit).mean())
        return {"ir_raw": self.relative, "ir_relative": self.relative, "sr": share}


def _partners(places: np.ndarray, label: np.ndarray) -> np.ndarray:
    """By the paper's rule; of more than 2,000 places the reach is that of the first of them."""
    reach = np.quantile(pdist(places[:2000]), 0.35)
    best, partner = np.full(len(places), np.inf), np.full(len(places), -1)
    for one in np.unique(label):
        own, others = np.flatnonzero(label == one), np.flatnonzero(label != one)
        apart, at = cKDTree(places[own]).query(places[others])
        nearer = apart < best[others]
        best[others[nearer]], partner[others[nearer]] = apart[nearer], own[at[nearer]]
    return np.where(best <= reach, partner, -1)


WORLDS: dict[str, tuple[Callable[[], World], int]] = {
    "100 of 3,000 windows": (World, 100),
    "the partner dominates": (lambda: World(of_partner=0.95), 100),
    "a tenth of the episodes bad": (lambda: World(bad=0.1), 100),
    "100 of 200 windows": (lambda: World(20, 10), 100),
    "400 of 3,000 windows": (World, 400),
    "100 of 10,000, the partner dominates": (lambda: World(200, of_partner=0.95), 100),
    "the same, some ten are the partners of all": (
        lambda: World(200, of_partner=0.95, labels=2),
        100,
    ),
    "100 of 100,000 windows": (lambda: World(2000), 100),
}


def hard_truth(
    make: Callable[[np.random.Generator], Trio], sets: int = 1500
) -> tuple[dict[str, float], dict[str, float]]:
    """The numbers of a population's first checkpoint, in units of the second, and differences."""
    generator = np.random.default_rng(99)
    return numbers_of([make(generator) for _ in range(sets)])


def of_dataset(confidence: float = 0.95, resamples: int = 1000) -> EvidenceOptions:
    """Options of a statement about a dataset's windows."""
    return EvidenceOptions(confidence, resamples, population=Of.DATASET)

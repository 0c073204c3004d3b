"""Jobs that look again and again, on synthetic checkpoints whose truth is known.

Anchors come from trajectories, about three of each;
radii of checkpoint and reference are correlated; partners are shared; distances depend on both
ends' trajectories. At a threshold any decided verdict counts as wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from acpc.contract import (
    EvidenceOptions,
    Look,
    Outcome,
    ScoreProtocol,
    Thresholds,
    UntilDecided,
)
from acpc_server.evidence import CheckpointSample, take_look
from acpc_server.evidence.confident import ConfidentVerdict
from acpc_server.evidence.numbers import Numbers
from common import run
from scipy import optimize, stats

PROTOCOL, THRESHOLDS = ScoreProtocol(), Thresholds()
FEW = 400
REMEDY, AT_ONCE = 400, 333
"""The limit of jobs until decided, and the anchors of others, a sixth fewer."""
SPREAD, CLUSTERED, TOGETHER, ELIGIBLE = 0.5, 0.4, 0.5, 0.65
BAD_RADIUS, BAD_DISTANCE = 5.0, 0.3
# True relative IR and SR, and the share of bad trajectories.
AT_A_THRESHOLD = {
    "IR": (0.3, 0.999), "SR": (0.1, 0.95), "both": (0.3, 0.95), "SR, 10 % bad": (0.1, 0.95, 0.1)
}  # fmt: skip
CLEAR = {
    "passes": (0.1, 1.0),
    "fails on IR": (0.5, 0.99),
    "fails on SR": (0.1, 0.7),
    "nearly passes": (0.2, 0.99),
    "nearly fails on IR": (0.36, 0.999),
}


@dataclass(frozen=True)
class Truth:
    """A checkpoint whose relative IR and SR are known, as ``anchors`` anchors could give it."""

    ir: float
    sr: float
    bad: float = 0.0

    def samples(self, anchors: int, seed: int) -> SampledWorld:
        """Its anchors in the order in which they are measured."""
        rng = np.random.default_rng(seed)
        trajectory = rng.integers(0, max(2, anchors // 3), anchors)

        def effect() -> np.ndarray:
            shared = rng.standard_normal(anchors)[trajectory]
            own = rng.standard_normal(anchors)
            return np.sqrt(CLUSTERED) * shared + np.sqrt(1 - CLUSTERED) * own

        common = effect()
        radius, reference = (
            np.exp(SPREAD * (np.sqrt(TOGETHER) * common + np.sqrt(1 - TOGETHER) * effect()))
            for _ in range(2)
        )
        bad = (rng.random(anchors) < self.bad)[trajectory]
        worse = _exceeded(1 - PROTOCOL.quantile, self.bad, np.log(BAD_RADIUS) / SPREAD)
        scale = self.ir * np.exp(SPREAD * (stats.norm.ppf(PROTOCOL.quantile) - worse))
        return SampledWorld(
            self,
            scale * radius * BAD_RADIUS**bad,
            reference,
            trajectory,
            effect(),
            rng.random(anchors) < ELIGIBLE,
            rng.random(anchors),
            bad,
        )


def _exceeded(share: float, bad: float, shift: float) -> float:
    """What a share of standard normal values exceeds, of which bad ones are shifted."""
    return float(
        optimize.brentq(
            lambda x: (1 - bad) * stats.norm.sf(x) + bad * stats.norm.sf(x - shift) - share, -20, 20
        )
    )


@dataclass(frozen=True)
class SampledWorld:
    """What was drawn for one experiment, of each anchor."""

    truth: Truth
    radius: np.ndarray
    reference: np.ndarray
    trajectory: np.ndarray
    distance_effect: np.ndarray
    eligible: np.ndarray
    chooses: np.ndarray
    bad: np.ndarray

    def first(self, count: int) -> tuple[CheckpointSample, CheckpointSample]:
        """Checkpoint and reference on the first anchors, paired among these."""
        partner = (self.chooses[:count] * count).astype(int)
        partner = np.where(partner == np.arange(count), (partner + 1) % count, partner)
        both = self.distance_effect[:count] + self.distance_effect[partner]
        at = self.truth.ir * np.exp(SPREAD * stats.norm.ppf(PROTOCOL.quantile)) + PROTOCOL.margin
        beyond = _exceeded(self.truth.sr, self.truth.bad, np.log(BAD_DISTANCE))
        distance = at * np.exp(both / np.sqrt(2) - beyond) * BAD_DISTANCE ** self.bad[:count]
        skipped = ~self.eligible[:count]
        partner, distance = np.where(skipped, -1, partner), np.where(skipped, np.nan, distance)
        trajectory = self.trajectory[:count]
        return (
            CheckpointSample(self.radius[:count], distance, partner, trajectory),
            CheckpointSample(self.reference[:count], distance, partner, trajectory),
        )


class Weighed(NamedTuple):
    """What a look reads of the evidence, which is half of the time to compute."""

    confident_outcome: Outcome
    p_passed: float
    p_failed: float


def weighed(
    own: CheckpointSample, reference: CheckpointSample, options: EvidenceOptions
) -> Weighed:
    """As the server's ``judge`` decides it.

    The first resamples, which are the same however many follow, often show that none of the errors
    of any look is met: then those are not drawn.
    """
    few = Numbers.of(own, reference, PROTOCOL, replace(options, resamples=FEW))
    assert few.ir_relative is not None  # noqa: S101 - there is a reference
    share = (FEW + 1) / (options.resamples + 1)
    ir, sr = few.ir_relative, few.sr
    passed = share * max(ir.p_at_most(THRESHOLDS.ir), sr.p_at_least(THRESHOLDS.sr))
    failed = share * min(ir.p_above(THRESHOLDS.ir), sr.p_below(THRESHOLDS.sr))
    if min(passed, failed) > 1 - EvidenceOptions().confidence:
        return Weighed(Outcome.UNDECIDED, passed, failed)
    numbers = Numbers.of(own, reference, PROTOCOL, options)
    verdict = ConfidentVerdict(numbers, THRESHOLDS, 1 - options.confidence, PROTOCOL.quantile)
    return Weighed(verdict.outcome()[0], verdict.p_passed(), verdict.p_failed())


def run_job(world: SampledWorld, limit: int, batch: int) -> tuple[Outcome, int]:
    """The confident outcome of a job that looks again and again, and where it stopped."""
    sizes = UntilDecided(batch).sizes(limit, EvidenceOptions().confidence)
    seen: list[Look] = []
    for size in sizes:
        own, reference = world.first(size)
        weigh = partial(weighed, own, reference)
        found = take_look(
            weigh,  # type: ignore[arg-type]
            EvidenceOptions(),
            THRESHOLDS.sr,
            seen,
            sizes[-1],
            anchors=size,
            eligible=int(own.eligible.sum()),
        )
        seen.append(found.look)
        if found.decided:
            return weigh(found.options).confident_outcome, size
    return Outcome.UNDECIDED, sizes[-1]


def study(truth: tuple[float, ...], seeds: Sequence[int], limit: int, batch: int) -> dict[str, Any]:
    """Many jobs on one truth: how often each outcome came, and the anchors they took."""
    ended = [run_job(Truth(*truth).samples(limit, seed), limit, batch) for seed in seeds]
    counts = Counter(str(outcome) for outcome, _ in ended)
    return {
        "relative_ir": truth[0],
        "sr": truth[1],
        "experiments": len(ended),
        **{name: counts[name] / len(ended) for name in ("passed", "failed", "undecided")},
        "anchors": float(np.mean([anchors for _, anchors in ended])),
    }


def compared(truth: tuple[float, ...], seeds: Sequence[int]) -> dict[str, Any]:
    """How often jobs until decided and jobs of fewer anchors at once decide one truth."""
    fixed, stopped, anchors = Counter[bool](), Counter[bool](), []
    for seed in seeds:
        world = Truth(*truth).samples(REMEDY, seed)
        outcome, taken = run_job(world, REMEDY, UntilDecided().batch)
        stopped[outcome is not Outcome.UNDECIDED] += 1
        anchors.append(taken)
        outcome = weighed(*world.first(AT_ONCE), EvidenceOptions()).confident_outcome
        fixed[outcome is not Outcome.UNDECIDED] += 1
    return {
        "experiments": len(anchors),
        "until_decided": stopped[True] / len(anchors),
        "at_once": fixed[True] / len(anchors),
        "anchors": float(np.mean(anchors)),
    }


def report(experiments: int = 2000, limit: int = 160, batch: int = 4) -> dict[str, Any]:
    """Wrong verdicts at the thresholds after many looks, and anchors where the truth is clear."""
    each = -(-experiments // len(AT_A_THRESHOLD))
    looks = len(UntilDecided(batch).sizes(limit, EvidenceOptions().confidence))
    at = {name: study(truth, range(each), limit, batch) for name, truth in AT_A_THRESHOLD.items()}
    clear = {name: compared(truth, range(max(1, each // 2))) for name, truth in CLEAR.items()}
    wrong = sum((row["passed"] + row["failed"]) * row["experiments"] for row in at.values())
    total = sum(row["experiments"] for row in at.values())
    return {
        "at a threshold": {"looks": looks, "limit": limit, **at},
        "wrong": wrong / total,
        "experiments": total,
        "clear": {"limit": REMEDY, "at_once": AT_ONCE, **clear},
    }


if __name__ == "__main__":
    run(report)

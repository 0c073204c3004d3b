"""``find_limit`` on synthetic checkpoints whose limit is known: how often the interval holds it.

Radii grow in proportion to the severity, with the same random numbers at every severity. Where the
limit lies differs from experiment to experiment. Some are scored on the whole grid too.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

import common  # noqa: F401 - the harness is beside the tests
import numpy as np
from acpc.contract import (
    EvidenceOptions,
    Outcome,
    Perturbation,
    Score,
    ScoreProtocol,
    Thresholds,
    parse,
    severities_up_to,
)
from acpc_client.results import LimitSearch, SeverityLimit
from acpc_server.evidence import CheckpointSample
from acpc_server.evidence.confident import ConfidentVerdict
from acpc_server.evidence.numbers import Numbers
from acpc_server.numerics.verdict import screen_score
from report_samples import judged
from report_samples import side as side_score
from synthetic_scores import MARGIN, Population, experiment, truth, with_sr

TOP, STEPS, EVALUATIONS = 0.2, 20, 6
LIMITS = 0.05, 0.15
SETS_OF, WHOLE_GRID = 200_000, 20
"""Anchors that a truth is computed from; one experiment in so many has its whole grid scored."""
# What is at its threshold at the limit: factors of the thresholds there, as of the intervals.
BREAKS_BY = {"IR": (1.0, 0.5), "SR": (3.0, 1.0), "both": (1.0, 1.0)}
POPULATIONS = {
    "a trajectory each": (Population(), "SR"),
    "a trajectory each, 10 % bad": (Population(bad=0.1), "IR"),
    "50 trajectories, 10 % bad": (Population(per_trajectory=2, within=0.3, bad=0.1), "both"),
    "300 anchors of 75": (Population(300, per_trajectory=4, within=0.5), "both"),
}


def report(
    experiments: int = 1000, resamples: int = 1000, seed: int = 1, only: str = ""
) -> dict[str, Any]:
    """A row per population."""
    rows = {}
    for name, (shape, breaks_by) in POPULATIONS.items():
        if only in ("", name):
            population = with_sr(shape, 0.9, SETS_OF // 4 // shape.anchors)
            rows[name] = _measured(population, breaks_by, experiments, resamples, seed)
            print(name, rows[name], file=sys.stderr, flush=True)
    asked = {"experiments": experiments, "resamples": resamples, "seed": seed}
    return {**asked, "steps": STEPS, "evaluations": EVALUATIONS, "rows": rows}


def _measured(
    population: Population, breaks_by: str, experiments: int, resamples: int, seed: int
) -> dict[str, Any]:
    true, (ir, sr) = truth(population, SETS_OF // population.anchors), BREAKS_BY[breaks_by]
    thresholds = Thresholds(ir * true.ir_relative, min(1.0, sr * true.sr))
    generator, options = np.random.default_rng(seed), EvidenceOptions(resamples=resamples)
    shifts = severities_up_to(parse(f"gaussian_noise:{TOP}"), STEPS)
    sample = judged(side_score("a-b", 0.2, 50.0), side_score("a-c", 1.0, 50.0), sure=True)
    counts, widths, errors, jobs, wider = Counter[str](), [], [], [], []

    for number in range(experiments):
        own, reference = experiment(population, generator)
        limit = generator.uniform(*LIMITS)
        scored = partial(_scored, sample, own, reference, limit, thresholds, options)

        search = LimitSearch(shifts, EVALUATIONS)
        while (place := search.next()) is not None:
            search.add(place, scored(shifts[place]))
        found = search.result()
        counts[_held(found, limit)] += 1
        counts["not monotone"] += not found.monotone
        widths.append(_width(found))
        errors.append(abs((found.estimate or TOP) - limit))
        jobs.append(len(found.points))
        if number % WHOLE_GRID == 0:
            whole = SeverityLimit.of((shift, scored(shift), "") for shift in shifts)
            wider.append(widths[-1] / _width(whole))
    return {
        **{name: counts[name] / experiments for name in ("covers", "above", "below")},
        "not_monotone": counts["not monotone"] / experiments,
        "median_width": median(widths),
        "median_error": median(errors),
        "mean_jobs": float(np.mean(jobs)),
        "most_jobs": max(jobs),
        "width_over_whole_grid": median(wider),
    }


def _width(found: SeverityLimit) -> float:
    return (TOP if found.breaks is None else found.breaks) - found.holds


def _held(found: SeverityLimit, limit: float) -> str:
    if found.holds > limit:
        return "above"
    return "below" if found.breaks is not None and found.breaks < limit else "covers"


def _scored(
    sample: Score,
    own: CheckpointSample,
    reference: CheckpointSample,
    limit: float,
    thresholds: Thresholds,
    options: EvidenceOptions,
    shift: Perturbation,
) -> Score:
    """What the server's own code says of the anchors under this change."""
    protocol = ScoreProtocol()
    own = replace(own, radius=own.radius * (shift.severity / limit))
    numbers = Numbers.of(own, reference, protocol, options)
    sure = ConfidentVerdict(numbers, thresholds, 1 - options.confidence, protocol.quantile)
    ir_raw, against = (np.quantile(x.radius, protocol.quantile) for x in (own, reference))
    relative = float(ir_raw / against)
    sr = float((own.distance[own.eligible] > ir_raw + MARGIN).mean())
    margin = float(screen_score(relative, sr, thresholds.ir, thresholds.sr))
    ends: Any = sure.score()
    evidence: Any = sample.evidence
    held = replace(evidence.score, lower=ends.lower, upper=ends.upper)
    return replace(
        sample,
        checkpoint=replace(sample.checkpoint, sr=sr),
        verdict=replace(
            sample.verdict,
            outcome=Outcome.PASSED if margin >= 0 else Outcome.FAILED,
            ir_relative=relative,
            score=margin,
            ir_passed=relative <= thresholds.ir,
            sr_passed=sr >= thresholds.sr,
        ),
        evidence=replace(evidence, score=held, confident_outcome=sure.outcome()[0]),
    )

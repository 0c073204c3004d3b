"""Intervals on synthetic scores of known truth: how often they hold it, what a verdict gets wrong.

Every population of tests/harness/synthetic_scores.py is drawn again and again; for paired
differences two checkpoints and their reference on the same anchors.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from common import run

# isort: split
from acpc.contract import EvidenceOptions
from synthetic_scores import (
    PAIRED_POPULATIONS,
    POPULATIONS,
    covered,
    experiment,
    paired_covered,
    paired_truth,
    trio,
    truth,
)

SURER = "clustered, 20 of 5, 99 %"


def report(
    experiments: int = 2000,
    resamples: int = 1000,
    seed: int = 1,
    confidence: float = 0.95,
    only: str = "",
) -> dict[str, Any]:
    """A row per population, and one at 99 %; of ``only`` one of them, or ``paired``."""
    levels = dict.fromkeys(POPULATIONS, confidence) | {SURER: 0.99}
    work: dict[str, Any] = {}
    for name, level in levels.items():
        population = POPULATIONS[name.removesuffix(", 99 %")]()
        options = EvidenceOptions(level, resamples)
        given = partial(experiment, population), truth(population), experiments, options, seed
        work[name] = partial(covered, *given)
    for name, make in PAIRED_POPULATIONS.items():
        population, options = make(), EvidenceOptions(resamples=resamples)
        given = partial(trio, population), paired_truth(population), experiments, options, seed
        work[f"paired, {name}"] = partial(paired_covered, *given)
    rows = {}
    for name, measure in work.items():
        if only in ("", name, name.partition(",")[0]):
            rows[name] = measure()
            print(name, rows[name], file=sys.stderr, flush=True)
    ends = ("passed, both", "failed, both")
    wrong = [row[end] for row in rows.values() for end in ends if end in row]
    asked = {"experiments": experiments, "resamples": resamples, "seed": seed}
    return {**asked, "populations": rows, "most_often_wrong": max(wrong, default=None)}


if __name__ == "__main__":
    run(report)

"""Intervals on synthetic scores of known truth: how often they hold it, what a verdict gets wrong.

Every population of tests/harness/interval_series.py is drawn again and again, and for paired
differences those of tests/harness/synthetic_scores.py: two checkpoints and their reference on the
same anchors.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Any

import numpy as np
from common import run

# isort: split
from acpc.contract import EvidenceOptions, ScoreProtocol
from acpc.evidence import paired_differences
from interval_series import POPULATIONS, measured
from synthetic_scores import PAIRED_NUMBERS, PAIRED_POPULATIONS, paired_truth, trio, truth

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
        given = population, truth(population), experiments, options, seed
        work[name] = partial(measured, *given)
    for name, make in PAIRED_POPULATIONS.items():
        options = EvidenceOptions(resamples=resamples)
        work[f"paired, {name}"] = partial(_paired, make(), experiments, options, seed)
    rows = {}
    for name, measure in work.items():
        if only in ("", name, name.partition(",")[0]):
            rows[name] = measure()
            print(name, rows[name], file=sys.stderr, flush=True)
    verdicts = [row["verdicts"] for row in rows.values() if "verdicts" in row]
    wrong = [row[f"{said} at both"] for row in verdicts for said in ("passed", "failed")]
    asked = {"experiments": experiments, "resamples": resamples, "seed": seed}
    return {**asked, "populations": rows, "most_often_wrong": max(wrong, default=None)}


def _paired(population: Any, experiments: int, options: EvidenceOptions, seed: int) -> Any:  # noqa: ANN401
    true, generator = paired_truth(population), np.random.default_rng(seed)
    held = dict.fromkeys(PAIRED_NUMBERS, 0)
    sure, seconds = 0, 0.0
    for _ in range(experiments):
        drawn = trio(population, generator)
        start = time.thread_time()
        found = paired_differences(*drawn, ScoreProtocol(), options)
        seconds += time.thread_time() - start
        for name in PAIRED_NUMBERS:
            _, interval = found[name]
            held[name] += interval.lower <= true[name] <= interval.upper
        interval = found["ir_raw"][1]
        sure += not interval.lower <= 0 <= interval.upper
    return {
        "truth": true,
        "covers": {name: times / experiments for name, times in held.items()},
        "ir_differs_surely": sure / experiments,
        "cpu_ms": 1000 * seconds / experiments,
    }


if __name__ == "__main__":
    run(report)

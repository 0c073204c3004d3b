"""Paired differences of two scores on synthetic anchors of known truth: how often intervals hold.

Every population is drawn again and again (tests/harness/synthetic_scores.py): two checkpoints and
their reference on the same anchors.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
from common import run

# isort: split
from acpc.contract import EvidenceOptions, ScoreProtocol
from acpc.evidence import paired_differences
from synthetic_scores import PAIRED_NUMBERS, PAIRED_POPULATIONS, paired_truth, trio


def report(
    experiments: int = 2000, resamples: int = 1000, seed: int = 1, only: str = ""
) -> dict[str, Any]:
    """A row per population; of ``only`` one of them."""
    rows, options = {}, EvidenceOptions(resamples=resamples)
    for name, make in PAIRED_POPULATIONS.items():
        if only in ("", name):
            rows[name] = _measured(make(), experiments, options, seed)
            print(name, rows[name], file=sys.stderr, flush=True)
    asked = {"experiments": experiments, "resamples": resamples, "seed": seed}
    return {**asked, "populations": rows}


def _measured(population: Any, experiments: int, options: EvidenceOptions, seed: int) -> Any:  # noqa: ANN401
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
    covers = {name: times / experiments for name, times in held.items()}
    cpu_ms = 1000 * seconds / experiments
    return {
        "truth": true,
        "covers": covers,
        "ir_differs_surely": sure / experiments,
        "cpu_ms": cpu_ms,
    }


if __name__ == "__main__":
    run(report)

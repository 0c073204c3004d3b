"""Intervals on synthetic scores of known truth: how often they hold it, what a verdict gets wrong.

Every population of tests/harness/interval_series.py is drawn again and again.
"""

from __future__ import annotations

import sys
from typing import Any

from common import run

# isort: split
from acpc.contract import EvidenceOptions
from interval_series import POPULATIONS, measured
from synthetic_scores import truth

SURER = "clustered, 20 of 5, 99 %"


def report(
    experiments: int = 2000,
    resamples: int = 1000,
    seed: int = 1,
    confidence: float = 0.95,
    only: str = "",
) -> dict[str, Any]:
    """A row per population, and one at 99 %; of ``only`` one of them."""
    levels = dict.fromkeys(POPULATIONS, confidence) | {SURER: 0.99}
    rows = {}
    for name, level in levels.items():
        if only not in ("", name):
            continue
        population = POPULATIONS[name.removesuffix(", 99 %")]()
        options = EvidenceOptions(level, resamples)
        rows[name] = measured(population, truth(population), experiments, options, seed)
        print(name, rows[name], file=sys.stderr, flush=True)
    worst = max(
        row["verdicts"][f"{said} at both"] for row in rows.values() for said in ("passed", "failed")
    )
    asked = {"experiments": experiments, "resamples": resamples, "seed": seed}
    return {**asked, "populations": rows, "most_often_wrong": worst}


if __name__ == "__main__":
    run(report)

"""Reads clean success by evaluation seed: its mean, and how far the seeds lie apart."""

from __future__ import annotations

import numpy as np
from acpc_client.errors import ArgumentError

from acpc_lab.tables import Numbers, Texts


def clean_success(success: Numbers, seeds: Texts) -> tuple[Numbers, Numbers]:
    """Clean success of each row in %, and its deviation over evaluation seeds.

    The deviation is that of the population of seeds, as in the paper's table of SIGReg weights,
    whose 99.3 +- 0.5 % are 99, 99 and 100 of 100 episodes.

    Args:
        success: Of each row; NaN where there is none, or where the seeds say it.
        seeds: Success of each seed, separated by spaces; empty where ``success`` says it.

    Returns:
        Mean and deviation, NaN where a row has none.

    Raises:
        ArgumentError: A row has both, or holds something that is no percentage.
    """
    mean, deviation = success.copy(), np.full(len(success), np.nan)
    for row, text in enumerate(seeds.tolist()):
        if not text:
            continue
        if not np.isnan(success[row]):
            raise ArgumentError(
                "success_clean_seeds", f"row {row + 1}: has success_clean too; give one of them"
            )
        values = _percentages(row, text)
        mean[row] = values.mean()
        deviation[row] = values.std() if len(values) > 1 else np.nan
    return mean, deviation


def _percentages(row: int, text: str) -> Numbers:
    try:
        values = np.array([float(part) for part in text.split()])
    except ValueError:
        values = np.array([np.nan])
    if not ((values >= 0) & (values <= 100)).all():
        raise ArgumentError(
            "success_clean_seeds",
            f"row {row + 1}: found {text!r}, wanted percentages separated by spaces",
        )
    return values

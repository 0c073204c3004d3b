"""Reads success rates: means over evaluation seeds, and intervals over episodes."""

from __future__ import annotations

import math

import numpy as np
from acpc_client.errors import ArgumentError

from acpc_lab.evidence import wilson
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

    Raises ArgumentError: A row has both, or holds something that is no percentage.
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


CONFIDENCE = 0.95

Interval = tuple[float, float]
"""Lower and upper end, in % or in percentage points."""


def success_interval(
    percent: float, episodes: float, confidence: float = CONFIDENCE
) -> Interval | None:
    """Wilson's score interval of a success rate, in %; None when ``episodes`` is NaN.

    It speaks of further episodes of the same checkpoint, not of further training runs.

    Args:
        percent: Success rate in %.
        episodes: How many episodes it was counted over.
        confidence: Between 0 and 1.

    Raises ArgumentError: So many episodes cannot have this rate.
    """
    if math.isnan(episodes):
        return None
    successes = percent * episodes / 100
    if abs(successes - round(successes)) > 0.0005 * episodes + 1e-6:  # printed to 0.1 %
        raise ArgumentError(
            "episodes", f"{percent:g} % of {episodes:g} episodes is no whole number of successes"
        )
    low, high = wilson(round(successes), int(episodes), confidence)
    return 100 * low, 100 * high


def success_intervals(percents: Numbers, episodes: Numbers) -> tuple[Interval, ...] | None:
    """``success_interval`` of every rate; None unless all have episodes.

    Raises ArgumentError: So many episodes cannot have such a rate.
    """
    pairs = zip(percents.tolist(), episodes.tolist(), strict=True)
    found = [success_interval(percent, count) for percent, count in pairs]
    held = tuple(interval for interval in found if interval is not None)
    return held if len(held) == len(found) else None


def gain_interval(
    success: float, reference: float, episodes: float, confidence: float = CONFIDENCE
) -> Interval | None:
    """Newcombe's interval of the difference of two success rates, in points.

    Built from the two Wilson intervals. Both rates are of ``episodes`` episodes; that the two
    planners met the same starts and goals is not used, so the interval is wide rather than narrow.
    None when ``episodes`` is NaN. Raises ArgumentError: So many episodes cannot have such a rate.
    """
    ours = success_interval(success, episodes, confidence)
    theirs = success_interval(reference, episodes, confidence)
    if ours is None or theirs is None:
        return None
    gain = success - reference
    down = math.hypot(success - ours[0], theirs[1] - reference)
    up = math.hypot(ours[1] - success, reference - theirs[0])
    return gain - down, gain + up

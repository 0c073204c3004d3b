"""Intervals of success rates, which are counts of finitely many episodes."""

from __future__ import annotations

import math

from acpc_client.errors import ArgumentError

from acpc_lab.evidence import wilson
from acpc_lab.tables import Numbers

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

    Raises:
        ArgumentError: So many episodes cannot have this rate.
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

    Raises:
        ArgumentError: So many episodes cannot have such a rate.
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
    None when ``episodes`` is NaN.

    Raises:
        ArgumentError: So many episodes cannot have such a rate.
    """
    ours = success_interval(success, episodes, confidence)
    theirs = success_interval(reference, episodes, confidence)
    if ours is None or theirs is None:
        return None
    gain = success - reference
    down = math.hypot(success - ours[0], theirs[1] - reference)
    up = math.hypot(ours[1] - success, reference - theirs[0])
    return gain - down, gain + up

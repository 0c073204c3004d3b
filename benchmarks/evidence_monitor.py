"""The drift alarm in simulated lives: how often it is false, how soon it comes, what it costs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from itertools import islice, repeat
from typing import Any

import numpy as np
from acpc_server.evidence import DriftTerms, DriftWatch, Reference
from scipy.signal import lfilter

ALPHAS = (0.05, 0.01, 0.001)
SIGNALS = 3
CHUNK = 10_000
World = Callable[[np.random.Generator], Iterator[float]]
Change = tuple[float, float]  # of the logarithm: shift and factor of the spread, in deviations
CHANGES: list[Change] = [(3, 1), (2, 1), (1, 1), (0.5, 1), (-1, 1), (0, 2), (0, 0.5)]


def report(lives: int = 300, observations: int = 500) -> dict[str, Any]:
    """False alarms without drift, delays with it, and microseconds of processor time a session."""
    worlds: dict[str, World] = {
        "independent": autoregressive(0.0),
        "autoregressive 0.9": autoregressive(0.9),
        "autoregressive 0.98": autoregressive(0.98),
        "episodes of 50, half of the variance": episodes(50, 0.5),
        "episodes of 50, 90 % of the variance": episodes(50, 0.9),
        "episodes of 200, half of the variance": episodes(200, 0.5),
    }
    return {
        "lives": lives,
        "observations": observations,
        "false_alarms": {
            name: _false_alarms(world, lives, observations) for name, world in worlds.items()
        },
        "without_spacing": _false_alarms(worlds["autoregressive 0.9"], lives, 100, spaced=False),
        "delays": [_delays(change, max(1, lives // 3), observations) for change in CHANGES],
        "microseconds": _cost(),
    }


def autoregressive(correlation: float) -> World:
    """Sessions of which each resembles the one before, in logarithms."""
    step = math.sqrt(1 - correlation**2)

    def sessions(rng: np.random.Generator) -> Iterator[float]:
        last = rng.standard_normal()
        while True:
            state = [correlation * last]
            steps = step * rng.standard_normal(CHUNK)
            values, _ = lfilter([1], [1, -correlation], steps, zi=state)
            last = values[-1]
            yield from np.exp(values).tolist()

    return sessions


def episodes(length: int, share: float) -> World:
    """Episodes of about ``length`` sessions, which have a share of the variance in common."""

    def sessions(rng: np.random.Generator) -> Iterator[float]:
        while True:
            count = int(rng.integers(length // 2, 3 * length // 2 + 1))
            common = math.sqrt(share) * rng.standard_normal()
            own = math.sqrt(1 - share) * rng.standard_normal(count)
            yield from np.exp(common + own).tolist()

    return sessions


def _false_alarms(
    world: World, lives: int, observations: int, *, spaced: bool = True
) -> dict[str, Any]:
    """Share of lives whose evidence ever reached 1 / alpha, of a test of one signal."""
    terms = DriftTerms(alpha=1e-300)
    most, spacings = [], []
    for seed in range(lives):
        rng = np.random.default_rng(seed)
        stream = world(rng)
        # Without: a reference that does not know that neighbours resemble each other.
        watch = DriftWatch(terms, 1, None if spaced else _unspaced(stream), seed)
        _run(watch, stream, calibrate=True)
        most.append(_run(watch, stream, observations))
        assert watch.reference is not None  # noqa: S101 - calibrated
        spacings.append(watch.reference.spacing)
    reached = np.array(most)
    return {
        "alarms": {f"{alpha:g}": float((reached >= -math.log(alpha)).mean()) for alpha in ALPHAS},
        "median_spacing": float(np.median(spacings)),
    }


def _unspaced(stream: Iterator[float]) -> Reference:
    return Reference(np.array(list(islice(stream, 200)))[:, None], 1)


def _run(
    watch: DriftWatch, stream: Iterator[float], observations: int = 0, *, calibrate: bool = False
) -> float:
    """Observe until the reference is there, or so many observations; the most evidence."""
    most, seen = -math.inf, 0
    while (calibrate and watch.reference is None) or seen < observations:
        if watch.observe([next(stream)]):
            seen += not calibrate
            most = max(most, watch.log_evidence[0])
    return most


def _delays(change: Change, lives: int, observations: int) -> dict[str, Any]:
    """Observations from a change, after 200 quiet ones, to the alarm at the server's defaults."""
    shift, spread = change
    terms = DriftTerms(spacing=1)
    delays: list[float] = []
    for seed in range(lives):
        rng = np.random.default_rng(seed)
        rows = np.exp(rng.standard_normal((20_000, 1))).repeat(SIGNALS, 1)
        watch, values = DriftWatch(terms, SIGNALS, None, seed), iter(rows.tolist())
        while watch.reference is None:
            watch.observe(next(values))
        for row in islice(values, 200 * watch.reference.spacing):
            watch.observe(row)
        found = math.inf
        for count in range(1, observations + 1):
            value = math.exp(shift + spread * rng.standard_normal())
            for _ in repeat(None, watch.reference.spacing):
                watch.observe([value] * SIGNALS)
            if any(watch.alarms):
                found = count
                break
        delays.append(found)
    found_share = float(np.isfinite(delays).mean())
    middle, late = (float(np.quantile(delays, q, method="lower")) for q in (0.5, 0.9))
    return {
        "shift": shift,
        "spread": spread,
        "found": found_share,
        "median": middle if math.isfinite(middle) else None,
        "q90": late if math.isfinite(late) else None,
    }


def _cost() -> dict[str, float]:
    """Of an observation with three signals, and of a session that is passed over."""
    found = {}
    for name, spacing in (("observation", 1), ("passed over", 4096)):
        watch = DriftWatch(DriftTerms(20, spacing), SIGNALS)
        rows = np.exp(np.random.default_rng(0).standard_normal((2000, SIGNALS))).tolist()
        begun = time.thread_time()
        for row in rows:
            watch.observe(row)
        found[name] = round(1e6 * (time.thread_time() - begun) / len(rows), 2)
    return found

"""The latency model of a device: what a unit of work of each kind costs."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple

# Weight of the newest measurement. An estimate grows from 0, so that one slow first call, which
# loads a checkpoint or warms a kernel up, rejects nobody for long.
SMOOTHING = 0.1
# Seconds without a measurement after which an estimate that rejects work halves. Rejected work is
# not measured, so one that is too high would otherwise never come down; and one that is measured
# all the time does not come down because most is rejected.
HALF_LIFE = 3.0
# Kinds remembered; a chunk's kind is a model, a shape and a mode.
MAX_KINDS = 512


class Work(NamedTuple):
    """An amount of work of one kind.

    Attributes:
        kind: Work of one kind costs the same per unit: a method, or a model, a shape and a mode.
        units: Rows of a chunk, or a request's share of the requests that take turns.
    """

    kind: Hashable
    units: float


class LatencyModel:
    """Seconds per unit of every kind of work, an exponential average of what was measured."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        # By kind: seconds per unit, and when that was changed.
        self._estimates: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def learn(self, work: Work, seconds: float) -> None:
        """Learn that ``work`` took ``seconds``."""
        with self._lock:
            known = self.unit_seconds(work.kind)
            smoothed = known + SMOOTHING * (seconds / work.units - known)
            self._estimates[work.kind] = smoothed, self.clock()
            self._estimates.move_to_end(work.kind)
            if len(self._estimates) > MAX_KINDS:
                self._estimates.popitem(last=False)

    def unit_seconds(self, kind: Hashable) -> float:
        """Return the seconds that a unit of ``kind`` takes; 0 for a kind never measured."""
        return self._estimates.get(kind, (0.0, 0.0))[0]

    def estimate(self, works: Iterable[Work]) -> float:
        """Estimate the seconds that the device needs for all of ``works``."""
        return sum(self.unit_seconds(work.kind) * work.units for work in works)

    def discount(self, kind: Hashable) -> None:
        """Halve the estimate of a kind that was rejected, if it was not measured for long."""
        with self._lock:
            seconds, moved_at = self._estimates.get(kind, (0.0, math.inf))
            if self.clock() - moved_at >= HALF_LIFE:
                self._estimates[kind] = 0.5 * seconds, self.clock()

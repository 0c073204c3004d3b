"""Whether a chunk can be done in time, from how fast its kind has run lately."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable

from acpc_server.errors import DeadlineExceeded
from acpc_server.scheduling.queue import Chunk

# Weight of the newest measurement, and what a refusal leaves of an estimate: what is refused is
# not measured, so one slow call would otherwise lock its kind out for good.
SMOOTHING = 0.2
DOUBT = 0.9
# Kinds remembered; a kind is a model, a shape and a mode.
MAX_KINDS = 512


class Pace:
    """Seconds per row of every kind of work, learned from what the device did."""

    def __init__(self) -> None:
        self._seconds: OrderedDict[Hashable, float] = OrderedDict()
        self._lock = threading.Lock()

    def learn(self, kind: Hashable, rows: int, seconds: float) -> None:
        """Note that a device call of ``rows`` rows took ``seconds``."""
        with self._lock:
            newest = seconds / rows
            known = self._seconds.get(kind)
            smooth = newest if known is None else known + SMOOTHING * (newest - known)
            self._seconds[kind] = smooth
            self._seconds.move_to_end(kind)
            if len(self._seconds) > MAX_KINDS:
                self._seconds.popitem(last=False)

    def estimate(self, chunks: list[Chunk]) -> float:
        """Seconds the device will need for all of ``chunks``; kinds never seen count nothing."""
        with self._lock:
            return sum(self._seconds.get(chunk.kind, 0.0) * chunk.rows for chunk in chunks)

    def admit(self, chunk: Chunk, before: list[Chunk]) -> None:
        """Refuse at once what cannot end before its deadline; with none before it, let it try.

        Raises:
            DeadlineExceeded: The queue and the chunk itself take longer than there is left.
        """
        remaining = chunk.context.remaining()
        if remaining is None or not before:
            return
        needed = self.estimate([*before, chunk])
        if needed > remaining:
            self._doubt(chunk.kind)
            raise DeadlineExceeded(
                f"the work ahead and this request take about {needed:.3f} s, but the deadline is "
                f"in {max(remaining, 0.0):.3f} s; allow more time or try again later",
                reason="DEADLINE_CANNOT_BE_MET",
                retry_after=needed,
            )

    def _doubt(self, kind: Hashable) -> None:
        with self._lock:
            if kind in self._seconds:
                self._seconds[kind] *= DOUBT

"""Caches latents of recent frames, by content."""

from __future__ import annotations

import threading
from collections import OrderedDict

from jaxtyping import Float
from torch import Tensor

from acpc_server.observe import Metrics

# What an entry takes beside its numbers: key, tensor, allocation and slot (about 620 measured).
ENTRY_BYTES = 640


class LatentCache:
    """Least recently used latents within a byte budget. Thread-safe.

    A key must cover everything that determines the latents: checkpoint, arithmetic, and the frames
    or what they are made from. A planner that advances by one frame finds its goal and all frames
    but the newest here.

    Args:
        budget_bytes: Bytes of memory for latents; 0 keeps none.
    """

    def __init__(self, budget_bytes: int, metrics: Metrics) -> None:
        self._budget = budget_bytes
        self._hits, self._misses = (metrics.latent_lookups.labels(x) for x in ("hit", "miss"))
        self._kept: OrderedDict[bytes, Tensor] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: bytes) -> Float[Tensor, "n dim"] | None:
        """The latents of ``key``, if they are still here."""
        with self._lock:
            latents = self._kept.get(key)
            if latents is not None:
                self._kept.move_to_end(key)
        (self._misses if latents is None else self._hits).inc()
        return latents

    def put(self, key: bytes, latents: Float[Tensor, "n dim"]) -> None:
        """Keep latents; the least recently used make room."""
        latents = latents.clone()  # a row of a batch would keep the whole batch alive
        with self._lock:
            if key in self._kept or _cost(latents) > self._budget:
                return
            self._kept[key] = latents
            self._bytes += _cost(latents)
            while self._bytes > self._budget:
                _, oldest = self._kept.popitem(last=False)
                self._bytes -= _cost(oldest)


def _cost(latents: Tensor) -> int:
    return latents.nbytes + ENTRY_BYTES

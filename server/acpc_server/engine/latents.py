"""Caches latents of recent frames, by content."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence

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

    def get(self, keys: Sequence[bytes]) -> dict[bytes, Float[Tensor, "n dim"]]:
        """The latents of those keys that are still here."""
        with self._lock:
            found = {key: latents for key in keys if (latents := self._kept.get(key)) is not None}
            for key in found:
                self._kept.move_to_end(key)
        hits = sum(key in found for key in keys)
        self._hits.inc(hits)
        self._misses.inc(len(keys) - hits)
        return found

    def put(self, latents: Mapping[bytes, Float[Tensor, "n dim"]]) -> None:
        """Keep latents; the least recently used make room."""
        if not self._budget:
            return
        # Copies: a row of a batch would keep the whole batch alive.
        copies = {key: rows.clone() for key, rows in latents.items()}
        with self._lock:
            for key, rows in copies.items():
                if key in self._kept or _cost(rows) > self._budget:
                    continue
                self._kept[key] = rows
                self._bytes += _cost(rows)
            while self._bytes > self._budget:
                _, oldest = self._kept.popitem(last=False)
                self._bytes -= _cost(oldest)


def _cost(latents: Tensor) -> int:
    return latents.nbytes + ENTRY_BYTES

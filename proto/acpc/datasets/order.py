"""The random order of the public protocol: that of ``torch.randperm``, without torch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Int64

_BLOCK = 2**16


class TorchOrder:
    """A Mersenne Twister as ``torch.Generator().manual_seed(seed)`` has it on a CPU.

    Args:
        seed: 0 to 2**64 - 1, of which that generator takes the lower 32 bits.
    """

    def __init__(self, seed: int) -> None:
        self._words = np.random.RandomState(seed % 2**32)

    def _take(self, count: int) -> Int64[np.ndarray, "count"]:
        return self._words.randint(0, 2**32, count, np.uint32).astype(np.int64)

    def permutation(self, count: int) -> Iterator[Int64[np.ndarray, "some"]]:
        """``torch.randperm(count)``, in parts; who needs the first few takes the first part.

        Drawn to its end it leaves the generator where torch leaves it. ``count`` is below
        2**32 / 20; above, torch draws words of 64 bits.
        """
        order = np.arange(count)
        view = order.data
        for start in range(0, count, _BLOCK):
            stop = min(start + _BLOCK, count)
            left = count - np.arange(start, min(stop, count - 1))  # the last one has no choice
            for at, ahead in enumerate((self._take(len(left)) % left).tolist(), start):
                view[at], view[at + ahead] = view[at + ahead], view[at]
            yield order[start:stop].copy()

    def randint(self, limit: int) -> int:
        """``torch.randint(limit, (1,))``; ``limit`` is below 2**28."""
        return int(self._take(1)[0]) % limit

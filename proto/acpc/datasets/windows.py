"""Which episodes anchors are drawn from; their windows, and the order in which these are drawn."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, Int64

from acpc.contract import ArgumentError
from acpc.datasets.columns import Dataset

_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_VALUE = re.compile(r"([^=,]+)=([-+.\deE]+)")
_BLOCK = 2**16


class TorchOrder:
    """A Mersenne Twister as ``torch.Generator().manual_seed(seed)`` has it on a CPU.

    Of the seed, 0 to 2**64 - 1, that generator takes the lower 32 bits.
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


class WindowIndex:
    """All (episode, start) with ``start + num_steps * frameskip <= length``, episode-major.

    A window's index in this order is its identity, as in the public loaders. ``frameskip``
    environment steps lie between the ``num_steps`` kept frames; ArgumentError if it is below 1.
    """

    def __init__(
        self, lengths: Int64[np.ndarray, "episodes"], *, num_steps: int, frameskip: int
    ) -> None:
        if frameskip < 1:
            raise ArgumentError("frameskip", f"is {frameskip}; give at least 1")
        self.span = num_steps * frameskip
        self._ends = np.cumsum(np.maximum(lengths - self.span + 1, 0))

    def __len__(self) -> int:
        return int(self._ends[-1]) if self._ends.size else 0

    @property
    def episodes(self) -> int:
        """Episodes that have a window."""
        return int(np.count_nonzero(np.diff(self._ends, prepend=0)))

    def of_random_episodes(self, count: int, random: TorchOrder) -> Int64[np.ndarray, "n"]:
        """One window each of the first ``count`` of a permutation of the episodes that have one.

        Fewer where there are fewer episodes. As the public protocol draws it: all episodes first,
        then each start.
        """
        sizes = np.diff(self._ends, prepend=0)
        episodes = np.flatnonzero(sizes)
        order = np.concatenate(list(random.permutation(len(episodes))))[:count]
        starts = [random.randint(int(sizes[episode])) for episode in episodes[order]]
        first: np.ndarray = (self._ends - sizes)[episodes[order]]
        return first + np.array(starts, np.int64)

    def locate(
        self, windows: Int64[np.ndarray, "n"]
    ) -> tuple[Int64[np.ndarray, "n"], Int64[np.ndarray, "n"]]:
        """Episode and start row within it of each window index; ArgumentError beyond them."""
        if windows.size and not 0 <= int(windows.min()) <= int(windows.max()) < len(self):
            raise ArgumentError("windows", f"must lie between 0 and {len(self) - 1}")
        episode = np.searchsorted(self._ends, windows, side="right")
        before = np.concatenate([[0], self._ends])[episode]
        return episode.astype(np.int64), windows - before


def chosen_episodes(dataset: Dataset, words: str) -> Bool[np.ndarray, "episodes"]:
    """Whether each episode is one of those named; all of them where ``words`` are empty.

    ``words`` are episodes and ranges of them, both ends included, counted from 0, or a column and
    its value in the first row of an episode. Raises ArgumentError, ``episodes``: They cannot be
    read, name episodes that there are not, or none; FailedPrecondition: There is no such column.
    """
    count = len(dataset.lengths)
    chosen = np.full(count, not words)
    if found := _VALUE.fullmatch(words):
        chosen = _of_value(dataset, found[1], found[2])
    elif words:
        for part in words.split(","):
            ends = _RANGE.fullmatch(part.strip())
            if ends is None:
                raise _wrong(f"found {part!r}, wanted like 400-499, 3,7,20-29 or split=1")
            first, last = int(ends[1]), int(ends[2] or ends[1])
            if not first <= last < count:
                raise _wrong(f"found {part!r}, but the dataset has episodes 0 to {count - 1}")
            chosen[first : last + 1] = True
    if not (chosen & (dataset.lengths > 0)).any():
        raise _wrong(f"{words!r} names no episode that has rows")
    return chosen


def _of_value(dataset: Dataset, name: str, text: str) -> Bool[np.ndarray, "episodes"]:
    try:
        wanted = float(text)
    except ValueError:
        raise _wrong(f"found {text!r} for column {name!r}, wanted a number") from None
    column = dataset.numeric_column(name)
    if column.width != 1:
        raise _wrong(f"column {name!r} has {column.width} numbers in a row; name one that has one")
    held = dataset.lengths > 0
    chosen = np.zeros(len(held), bool)
    chosen[held] = column.gather(dataset.offsets[held]).reshape(-1) == wanted
    return chosen


def _wrong(problem: str) -> ArgumentError:
    return ArgumentError("episodes", problem)

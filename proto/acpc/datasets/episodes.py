"""Which episodes of a dataset anchors are drawn from, in words: ``400-499,510`` or ``split=1``."""

from __future__ import annotations

import re

import numpy as np
from jaxtyping import Bool

from acpc.contract import ArgumentError
from acpc.datasets.columns import Dataset

_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_VALUE = re.compile(r"([^=,]+)=([-+.\deE]+)")


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

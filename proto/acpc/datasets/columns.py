"""What a dataset is, in whatever format: episodes, columns of numbers, columns of frames.

Its format is told by its name, without opening anything.

A dataset is untrusted. Whoever reads a format checks it with the methods here, so that the same
fault has the same words in all of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from jaxtyping import Int64, Shaped

from acpc.contract import FailedPrecondition, did_you_mean

FORMATS = ("hdf5", "lance")
HDF5_SUFFIXES = (".h5", ".hdf5")
LANCE_SUFFIX = ".lance"
MAX_ROWS = 2**27
"""Rows of a column, 134 million; also bounds the windows and the permutation over them."""

MAX_EPISODES = 2**24
MAX_NUMERIC_BYTES = 2**34
"""Bytes of a column of numbers, 16 GiB: statistics read all of it, even what was never written."""

MAX_FRAME_SIDE = 4096


def recognise(path: Path) -> str:
    """One of ``FORMATS``; empty: neither by its name, or nothing that may be looked at.

    A folder that holds Lance tables is ``lance`` as each of them is.
    """
    if path.name.endswith(HDF5_SUFFIXES):
        return "hdf5"
    try:
        tables = path.name.endswith(LANCE_SUFFIX) or any(path.glob(f"*{LANCE_SUFFIX}"))
    except OSError:
        return ""
    return "lance" if tables else ""


def unread(name: str) -> str:
    """Words that a dataset is not read, and what makes HDF5 of it."""
    return (
        f"{name!r} is not HDF5 or Lance; `swm convert {name} {name}.h5 -f hdf5` makes it (zstd -d "
        "first, if compressed): docs/anchors.md, 'Other formats'"
    )


class DatasetColumn(ABC):
    """One column."""

    name: str  # in the dataset
    shape: tuple[int, ...]  # numbers: (rows,) or (rows, width); frames: (rows, height, width, 3)

    @property
    def width(self) -> int:
        """Numbers in a row."""
        return int(np.prod(self.shape[1:]))

    @abstractmethod
    def blocks(self) -> Iterator[Shaped[np.ndarray, "rows ..."]]:
        """The whole column, some megabytes at a time; FailedPrecondition where it is damaged."""

    @abstractmethod
    def gather(self, rows: Int64[np.ndarray, "..."]) -> Shaped[np.ndarray, "..."]:
        """The given rows, in any order and as often as wanted; raises as ``blocks``."""


class Dataset(ABC):
    """An open dataset."""

    name: str  # in its errors
    lengths: Int64[np.ndarray, "episodes"]  # rows of each; 1 occurs, and 0 is an empty episode
    offsets: Int64[np.ndarray, "episodes"]  # first row of each

    @abstractmethod
    def identity(self) -> tuple[object, ...]:
        """Changes when the open dataset is written to; no other one has it."""

    @abstractmethod
    def numeric_column(self, name: str) -> DatasetColumn:
        """A column of numbers, (rows,) or (rows, width); FailedPrecondition for any other kind."""

    @abstractmethod
    def pixel_column(self, name: str) -> DatasetColumn:
        """A column of RGB frames, uint8 (rows, height, width, 3); FailedPrecondition otherwise."""

    @abstractmethod
    def column_names(self) -> list[str]:
        """Names of all that may be a column, in order; the index of the episodes is none."""

    def bad(self, column: str, description: str) -> FailedPrecondition:
        """The error of a column that cannot be used."""
        return FailedPrecondition(f"dataset {self.name!r}, column {column!r} {description}")

    def missing(self, column: str, known: Iterable[str]) -> FailedPrecondition:
        """The error of a column that there is not."""
        names = sorted(known)
        guess = did_you_mean(column, names)
        return self.bad(
            column, "; ".join(filter(None, ["does not exist", guess, f"there are {names}"]))
        )

    @property
    def rows_used(self) -> int:
        """Rows up to the end of the last episode."""
        return int((self.offsets + self.lengths).max(initial=0))

    def check_index(self, name: str, dtype: np.dtype, shape: tuple[int, ...]) -> None:
        """FailedPrecondition where these cannot be the lengths or offsets of episodes."""
        if len(shape) != 1 or dtype.kind not in "iu":
            raise self.bad(name, f"must be one axis of integers; is {dtype} {shape}")
        if not 1 <= shape[0] <= MAX_EPISODES:
            raise self.bad(name, f"has {shape[0]} episodes; 1 to {MAX_EPISODES} are read")

    def episode_numbers(
        self, name: str, values: Shaped[np.ndarray, "episodes"]
    ) -> Int64[np.ndarray, "episodes"]:
        """Lengths or offsets as they were read; FailedPrecondition names the first impossible."""
        self.check_index(name, values.dtype, values.shape)
        wrong = np.flatnonzero((values < 0) | (values > MAX_ROWS))
        if wrong.size:
            raise self.bad(
                name, f"of episode {wrong[0]} is {values[wrong[0]]}; must be 0 to {MAX_ROWS}"
            )
        return values.astype(np.int64)

    def check_episodes(self) -> None:
        """FailedPrecondition where lengths and offsets do not fit each other."""
        if self.lengths.shape != self.offsets.shape:
            raise self.bad(
                "ep_offset", f"has {self.offsets.size} episodes, but ep_len has {self.lengths.size}"
            )
        filled = np.flatnonzero(self.lengths)
        order = filled[np.argsort(self.offsets[filled], kind="stable")]
        ends = (self.offsets + self.lengths)[order]
        overlap = np.flatnonzero(self.offsets[order][1:] < ends[:-1])
        if overlap.size:
            first, second = order[overlap[0]], order[overlap[0] + 1]
            raise self.bad("ep_offset", f"makes episodes {first} and {second} overlap")

    def check_numbers(self, name: str, dtype: np.dtype, shape: tuple[int, ...]) -> None:
        """FailedPrecondition where these are no numbers, or not one for every row."""
        if dtype.kind not in "fiu" or len(shape) not in (1, 2):
            raise self.bad(
                name, f"must hold numbers of shape (rows,) or (rows, width); is {dtype} {shape}"
            )
        size = int(np.prod(shape[1:], dtype=object)) * shape[0] * dtype.itemsize
        if not 1 <= size <= MAX_NUMERIC_BYTES:
            raise self.bad(name, f"holds {size} bytes; 1 to {MAX_NUMERIC_BYTES} are read")
        self._check_rows(name, shape[0])

    def check_pixels(self, name: str, dtype: np.dtype, shape: tuple[int, ...]) -> None:
        """FailedPrecondition where these are no RGB frames, or not one for every row."""
        if dtype != np.uint8 or len(shape) != 4 or shape[3] != 3:
            raise self.bad(
                name,
                "must hold uint8 frames of shape (rows, height, width, 3), RGB last; is "
                f"{dtype} {shape} (docs/tasks.md, 'Frames in another form')",
            )
        if not all(1 <= side <= MAX_FRAME_SIDE for side in shape[1:3]):
            raise self.bad(name, f"has frames with sides outside 1 to {MAX_FRAME_SIDE} pixels")
        self._check_rows(name, shape[0])

    def _check_rows(self, name: str, rows: int) -> None:
        if rows < self.rows_used:
            episode = int(np.argmax(self.offsets + self.lengths))
            raise self.bad(
                name, f"has {rows} rows, but episode {episode} ends at row {self.rows_used}"
            )

"""Reads stable-worldmodel's Lance tables, whose frames are JPEG images."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from acpc.arrays import NDArray
from acpc.datasets import LANCE_SUFFIX, MAX_FRAME_SIDE, MAX_ROWS, Dataset, DatasetColumn
from acpc_client.errors import FailedPrecondition

from acpc_lab.extras import load

_EPISODE, _STEP = "episode_idx", "step_idx"
_BESIDE = ("_videos", "_episodes")
_TAKEN = 64
# What the library raises for what it cannot read; its own errors are these.
_BROKEN = (OSError, ValueError, RuntimeError, KeyError)


class LanceDataset(Dataset):
    """A table with a row a step, episodes one after another.

    Args:
        path: ``<table>.lance``, or a folder with one such table.

    Raises FailedPrecondition: It is damaged, of another layout, or Lance is not installed.
    """

    def __init__(self, path: Path) -> None:
        self.name = path.name
        lance: Any = load("lance", "lance")
        self.path = self._table(path)
        try:
            self.rows = lance.dataset(str(self.path))
        except _BROKEN as error:
            raise self._unusable(f"is no readable Lance table: {error!s:.160}") from error
        self._names = list(self.rows.schema.names)
        if _EPISODE not in self._names:
            raise self._unusable(
                f"is a Lance table without the column {_EPISODE!r}, so not one of "
                f"stable-worldmodel's; it has {sorted(self._names)}"
            )
        count = self.rows.count_rows()
        if not 1 <= count <= MAX_ROWS:
            raise self._unusable(f"has {count} rows; 1 to {MAX_ROWS} are read")
        episode = self._values(_EPISODE)
        if episode.ndim != 1 or episode.dtype.kind not in "iu":
            raise self.bad(_EPISODE, f"must hold integers; is {episode.dtype} {episode.shape}")
        if (np.diff(episode) < 0).any():
            raise self.bad(_EPISODE, "decreases: episodes must lie one after another")
        _, lengths = np.unique(episode, return_counts=True)
        self.lengths = self.episode_numbers(_EPISODE, lengths)
        self.offsets = np.cumsum(self.lengths) - self.lengths

    def identity(self) -> tuple[object, ...]:
        """The path: it is read within one command."""
        return (str(self.path),)

    def column_names(self) -> list[str]:
        """The columns of the table."""
        return sorted({*self._names} - {_EPISODE, _STEP})

    def numeric_column(self, name: str) -> _Numbers:
        """A column of numbers, (rows,) or (rows, width); FailedPrecondition for any other kind."""
        values = self._values(self._known(name))
        self.check_numbers(name, values.dtype, values.shape)
        return _Numbers(name, values)

    def pixel_column(self, name: str) -> _Images:
        """A column of JPEG images; FailedPrecondition for any other kind."""
        column = self._known(name)
        kind = self.rows.schema.field(column).type
        if "binary" not in str(kind):
            raise self.bad(name, f"must hold JPEG images; is {kind}")
        return _Images(self, name, column)

    def _table(self, path: Path) -> Path:
        if path.suffix == LANCE_SUFFIX:
            whole = path.with_name(path.stem.rpartition("_")[0] + LANCE_SUFFIX)
            if path.stem.endswith(_BESIDE) and whole.is_dir():
                raise self._unusable(f"is a part of the dataset {whole.name}; name that")
            return path
        tables = sorted(
            one for one in path.glob(f"*{LANCE_SUFFIX}") if not one.stem.endswith(_BESIDE)
        )
        if len(tables) != 1:
            found = [one.name for one in tables]
            raise self._unusable(f"must name one Lance table; this folder holds {found}")
        return tables[0]

    def _unusable(self, description: str) -> FailedPrecondition:
        return FailedPrecondition(f"dataset {self.name!r} {description}")

    def _known(self, name: str) -> str:
        """The column; its writer puts an underscore for each dot."""
        for spelled in (name, name.replace(".", "_")):
            if spelled in self._names and spelled not in (_EPISODE, _STEP):
                return spelled
        missing = self.missing(name, self.column_names())
        films = self.path.with_name(f"{self.path.stem}_videos{LANCE_SUFFIX}")
        if not films.is_dir():
            raise missing
        raise FailedPrecondition(
            f"{missing.message}; videos in {films.name} are not read: stable-worldmodel's "
            f"`swm convert {self.path.stem} {self.path.stem}.h5 -f hdf5` makes HDF5 of both",
            reason="DATASET_FORMAT",
        )

    def _values(self, name: str) -> NDArray[Any]:
        try:
            return arrow_numbers(self.rows.to_table(columns=[name]).column(name))
        except _BROKEN as error:
            raise self.bad(name, f"cannot be read: {error}") from error


class _Numbers(DatasetColumn):
    """Numbers in memory."""

    def __init__(self, name: str, values: NDArray[Any]) -> None:
        self.name = name
        self.shape = values.shape
        self._values = values

    def blocks(self) -> Iterator[NDArray[Any]]:
        """The whole column."""
        yield self._values

    def gather(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """The given rows."""
        return self._values[rows]


class _Images(DatasetColumn):
    """Frames that are decoded when they are asked for.

    Raises FailedPrecondition: The first frame cannot be read, or is larger than frames may be.
    """

    def __init__(self, dataset: LanceDataset, name: str, column: str) -> None:
        self.name = name
        self._dataset = dataset
        self._column = column
        frame = next(self._decoded([0]))
        self.shape = (dataset.rows_used, *frame.shape)
        dataset.check_pixels(name, frame.dtype, self.shape)

    def blocks(self) -> Iterator[NDArray[np.uint8]]:
        """The whole column, some frames at a time."""
        for start in range(0, self.shape[0], _TAKEN):
            yield self.gather(np.arange(start, min(start + _TAKEN, self.shape[0])))

    def gather(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        """The given rows, each decoded once; FailedPrecondition names one that is damaged."""
        wanted, back = np.unique(rows, return_inverse=True)
        frames = np.empty((len(wanted), *self.shape[1:]), np.uint8)
        for at, frame in enumerate(self._decoded(wanted.tolist())):
            if frame.shape != self.shape[1:]:
                raise self._bad(
                    wanted[at], f"is a frame {frame.shape}; others are {self.shape[1:]}"
                )
            frames[at] = frame
        return frames[back].reshape(*rows.shape, *self.shape[1:])

    def _decoded(self, rows: list[int]) -> Iterator[NDArray[np.uint8]]:
        for start in range(0, len(rows), _TAKEN):
            part = rows[start : start + _TAKEN]
            try:
                images = self._dataset.rows.take(part, columns=[self._column])[self._column]
            except _BROKEN as error:
                raise self._bad(part[0], f"cannot be read: {error}") from error
            for row, image in zip(part, images, strict=True):
                try:
                    yield _decode(image.as_py() or b"")
                except ValueError as error:
                    raise self._bad(row, str(error)) from error

    def _bad(self, row: int, description: str) -> FailedPrecondition:
        return self._dataset.bad(self.name, f"row {row}: {description}")


def arrow_numbers(column: Any) -> NDArray[Any]:  # noqa: ANN401 - pyarrow.ChunkedArray
    """The values of a column, (rows,) or (rows, width).

    Raises ValueError: It holds nulls, rows of unequal length, or something else than numbers.
    """
    arrow, compute = load("pyarrow", "lance"), load("pyarrow.compute", "lance")
    kind = column.type
    if column.null_count:
        raise ValueError(f"has {column.null_count} rows without a value")
    width = ()
    is_list = (getattr(arrow.types, f"is_{form}list") for form in ("", "large_", "fixed_size_"))
    if any(matches(kind) for matches in is_list):
        widths = compute.unique(compute.list_value_length(column)).to_pylist()
        if len(widths) > 1:
            raise ValueError(f"has rows of {widths[0]} numbers and of {widths[1]}")
        width, column = tuple(widths), compute.list_flatten(column)
    numeric = arrow.types.is_integer(column.type) or arrow.types.is_floating(column.type)
    if not numeric or column.null_count:
        raise ValueError(f"must hold numbers; is {kind}, {column.null_count} of them missing")
    values: NDArray[Any] = np.asarray(column.to_numpy())
    return values.reshape(-1, *width)


def _decode(encoded: bytes) -> NDArray[np.uint8]:
    """The RGB frame of a JPEG or PNG image; ValueError where it is none, or too large."""
    image = load("PIL.Image")
    try:
        with image.open(io.BytesIO(encoded), formats=("JPEG", "PNG")) as opened:
            if max(opened.size) <= MAX_FRAME_SIDE:
                return np.asarray(opened.convert("RGB"))
    except (OSError, ValueError, SyntaxError, image.DecompressionBombError) as error:
        raise ValueError("is no whole JPEG or PNG image") from error
    raise ValueError(f"has a side over {MAX_FRAME_SIDE} pixels")

"""Columns of numbers held whole, and of frames that are decoded when they are asked for.

Frames of a video are found by index or time, exactly, whatever its codec reorders.
"""

from __future__ import annotations

import io
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from acpc.arrays import NDArray
from acpc.contract import load_optional
from acpc.datasets import MAX_FRAME_SIDE, Dataset, DatasetColumn
from acpc.extras import install_line
from acpc_client.errors import FailedPrecondition

from acpc_lab.extras import load


def arrow_numbers(column: Any) -> NDArray[Any]:  # noqa: ANN401 - pyarrow.ChunkedArray
    """The values of a column, (rows,) or (rows, width).

    Raises ValueError: It holds nulls, rows of unequal length, or something else than numbers.
    """
    arrow, compute = load("pyarrow", "parquet"), load("pyarrow.compute", "parquet")
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


# A reader of frames takes rows in ascending order and yields the frame of each.
ReadFrames = Callable[[NDArray[np.int64]], Iterator[NDArray[np.uint8]]]
_BLOCK_ROWS = 64


class Damaged(ValueError):
    """Bytes that are no frame; whoever knows the row says which."""


class NumberColumn(DatasetColumn):
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


class FrameColumn(DatasetColumn):
    """Frames that a reader decodes, a few at a time.

    Raises FailedPrecondition: The first frame cannot be read, or is larger than frames may be.
    """

    def __init__(self, dataset: TabledDataset, name: str, read: ReadFrames) -> None:
        self.name = name
        self._dataset = dataset
        self._read = read
        first = int(dataset.offsets[np.argmax(dataset.lengths > 0)])
        _, frame = next(self._decoded(np.array([first])))
        self.shape = (dataset.rows_used, *frame.shape)
        dataset.check_pixels(name, frame.dtype, self.shape)

    def blocks(self) -> Iterator[NDArray[np.uint8]]:
        """The whole column, some frames at a time."""
        for start in range(0, self.shape[0], _BLOCK_ROWS):
            yield self.gather(np.arange(start, min(start + _BLOCK_ROWS, self.shape[0])))

    def gather(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        """The given rows, each decoded once; FailedPrecondition names one that is damaged."""
        wanted, back = np.unique(rows, return_inverse=True)
        frames = np.empty((len(wanted), *self.shape[1:]), np.uint8)
        for at, (row, frame) in enumerate(self._decoded(wanted)):
            if frame.shape != self.shape[1:]:
                raise self._dataset.bad(
                    self.name, f"row {row}: is a frame {frame.shape}; others are {self.shape[1:]}"
                )
            frames[at] = frame
        return frames[back].reshape(*rows.shape, *self.shape[1:])

    def _decoded(self, rows: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.uint8]]]:
        frames = self._read(rows)
        for row in rows.tolist():
            try:
                frame = next(frames)
            except Damaged as damaged:
                raise self._dataset.bad(self.name, f"row {row}: {damaged}") from damaged
            yield row, frame


class TabledDataset(Dataset):
    """A dataset whose numbers fit into memory, column by column, and whose frames need not."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name

    def identity(self) -> tuple[object, ...]:
        """The path: it is read within one command."""
        return (str(self.path),)

    def set_episodes(self, lengths: NDArray[Any], offsets: NDArray[Any] | None = None) -> None:
        """Takes the lengths, and where episodes begin unless each begins where one ends.

        Raises FailedPrecondition: They make no sense, or no episode has a row.
        """
        self.lengths = self.episode_numbers("ep_len", lengths)
        begins = np.cumsum(self.lengths) - self.lengths if offsets is None else offsets
        self.offsets = self.episode_numbers("ep_offset", begins)
        self.check_episodes()
        if not self.lengths.any():
            raise self.unusable(f"has {len(self.lengths)} episodes, all of them empty")

    def unusable(self, description: str) -> FailedPrecondition:
        """The error of a dataset that cannot be read as what it seems to be."""
        return FailedPrecondition(f"dataset {self.name!r} {description}")

    def numeric_column(self, name: str) -> NumberColumn:
        """A column of numbers, (rows,) or (rows, width); FailedPrecondition for any other kind."""
        values = self.numbers(name)
        self.check_numbers(name, values.dtype, values.shape)
        return NumberColumn(name, values)

    def pixel_column(self, name: str) -> FrameColumn:
        """A column of RGB frames; FailedPrecondition for any other kind."""
        return FrameColumn(self, name, self.frames(name))

    @abstractmethod
    def numbers(self, name: str) -> NDArray[Any]:
        """The values of a column; FailedPrecondition where there are none."""

    @abstractmethod
    def frames(self, name: str) -> ReadFrames:
        """The reader of a column of frames; FailedPrecondition where there is none."""

    def by_episode(
        self, rows: NDArray[np.int64]
    ) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.int64]]]:
        """Splits ascending rows by episode: yields its index, the rows, and their steps in it."""
        filled = np.flatnonzero(self.lengths)
        order = filled[np.argsort(self.offsets[filled], kind="stable")]
        episode = order[np.searchsorted(self.offsets[order], rows, side="right") - 1]
        for part in np.split(np.arange(len(rows)), np.flatnonzero(np.diff(episode)) + 1):
            if part.size:
                own = rows[part]
                yield int(episode[part[0]]), own, own - self.offsets[episode[part[0]]]


def decode_image(encoded: bytes) -> NDArray[np.uint8]:
    """The RGB frame of a JPEG or PNG image.

    Raises Damaged: It is none, or has more pixels than a frame may have.
    """
    image = load("PIL.Image")
    try:
        with image.open(io.BytesIO(encoded), formats=("JPEG", "PNG")) as opened:
            if max(opened.size) > MAX_FRAME_SIDE:
                raise Damaged(f"has a side over {MAX_FRAME_SIDE} pixels")
            frame: NDArray[np.uint8] = np.asarray(opened.convert("RGB"))
            return frame
    except Damaged:
        raise
    except (OSError, ValueError, SyntaxError, image.DecompressionBombError) as error:
        raise Damaged("is no whole JPEG or PNG image") from error


class VideoFile:
    """One video, whose index is read when it is made; no frame is kept.

    Args:
        source: A file, or the content of one.

    Raises Damaged: It cannot be read, is cut off, or holds no video; FailedPrecondition: PyAV is
    not installed; the message says how to install it.
    """

    def __init__(self, source: Path | bytes) -> None:
        self._av: Any = load_optional("av", install_line("video"))
        self._source = source
        with self._opened() as (container, stream):
            if max(stream.width, stream.height) > MAX_FRAME_SIDE:
                raise Damaged(f"is a video with a side over {MAX_FRAME_SIDE} pixels")
            packets = [p for p in container.demux(stream) if p.pts is not None]
            self._base = stream.time_base
        if not packets:
            raise Damaged("is in a video without a frame")
        self._times = np.unique([p.pts for p in packets])
        self._keys = np.unique([p.pts for p in packets if p.is_keyframe] or [0])

    def __len__(self) -> int:
        return len(self._times)

    def nearest(self, seconds: NDArray[np.float64], within: float) -> NDArray[np.int64]:
        """Indices of the frames shown nearest to these times.

        Raises Damaged: There is none ``within`` so many seconds of one of them.
        """
        shown = self._times * float(self._base)
        found = np.searchsorted((shown[1:] + shown[:-1]) / 2, seconds)
        far = np.flatnonzero(~(np.abs(shown[found] - seconds) <= within))  # also those that are NaN
        if far.size:
            raise Damaged(f"has no frame at {seconds[far[0]]:.3f} s of the video")
        return found.astype(np.int64)

    def frames(self, indices: NDArray[np.int64]) -> Iterator[NDArray[np.uint8]]:
        """The RGB frames of these ascending indices.

        Raises Damaged: There is no such frame, or the video is damaged before it.
        """
        if indices[-1] >= len(self):
            raise Damaged(f"is frame {indices[-1]} of a video that has {len(self)}")
        wanted = self._times[indices]
        key = np.maximum(np.searchsorted(self._keys, wanted, side="right") - 1, 0)
        with self._opened() as (container, stream):
            for group in np.split(wanted, np.flatnonzero(np.diff(key)) + 1):
                container.seek(int(group[0]), stream=stream)
                yield from self._decoded(container, stream, iter(group.tolist()))

    def _decoded(
        self,
        container: Any,  # noqa: ANN401 - of PyAV
        stream: Any,  # noqa: ANN401
        wanted: Iterator[int],
    ) -> Iterator[NDArray[np.uint8]]:
        time = next(wanted)
        for frame in container.decode(stream):
            if frame.pts is None or frame.pts < time:
                continue
            if frame.pts > time:
                break
            yield frame.to_ndarray(format="rgb24")
            following = next(wanted, None)
            if following is None:
                return
            time = following
        raise Damaged("cannot be decoded: the video is damaged or cut off before it")

    @contextmanager
    def _opened(self) -> Iterator[tuple[Any, Any]]:
        source = self._source
        opened = io.BytesIO(source) if isinstance(source, bytes) else str(source)
        try:
            with self._av.open(opened) as container:
                if not container.streams.video:
                    raise Damaged("is in a file without video")
                yield container, container.streams.video[0]
        except self._av.FFmpegError as error:
            named = "" if isinstance(source, bytes) else f" {source.name!r}"
            raise Damaged(f"is in a video{named} that cannot be read: {error}") from error

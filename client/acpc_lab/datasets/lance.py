"""Reads stable-worldmodel's Lance tables: frames as JPEG images, or as videos beside the table."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from acpc.arrays import NDArray
from acpc.contract import load_optional
from acpc.datasets import LANCE_SUFFIX, MAX_ROWS
from acpc.extras import install_line

from acpc_lab.datasets.tables import (
    Damaged,
    ReadFrames,
    TabledDataset,
    VideoFile,
    arrow_numbers,
    decode_image,
)

_EPISODE, _STEP = "episode_idx", "step_idx"
_BESIDE = ("_videos", "_episodes")
_TAKEN = 64
# What the library raises for what it cannot read; its own errors are these.
_BROKEN = (OSError, ValueError, RuntimeError, KeyError)


class LanceDataset(TabledDataset):
    """A table with a row a step, episodes one after another.

    Args:
        path: ``<table>.lance``, or a folder with one such table.

    Raises FailedPrecondition: It is damaged, of another layout, or Lance is not installed.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._lance: Any = load_optional("lance", install_line("lance"))
        self.path = self._table(path)
        self._rows = self._opened(self.path)
        self._names = list(self._rows.schema.names)
        if _EPISODE not in self._names:
            raise self.unusable(
                f"is a Lance table without the column {_EPISODE!r}, so not one of "
                f"stable-worldmodel's; it has {sorted(self._names)}"
            )
        count = self._rows.count_rows()
        if not 1 <= count <= MAX_ROWS:
            raise self.unusable(f"has {count} rows; 1 to {MAX_ROWS} are read")
        episode = self._values(_EPISODE)
        if episode.ndim != 1 or episode.dtype.kind not in "iu":
            raise self.bad(_EPISODE, f"must hold integers; is {episode.dtype} {episode.shape}")
        if (np.diff(episode) < 0).any():
            raise self.bad(_EPISODE, "decreases: episodes must lie one after another")
        self._numbers, lengths = np.unique(episode, return_counts=True)
        self.set_episodes(lengths)

    def numbers(self, name: str) -> NDArray[Any]:
        """The values of a column."""
        return self._values(self._known(name))

    def frames(self, name: str) -> ReadFrames:
        """The reader of a column of images, or of videos in the table beside this one."""
        known = self._videos()
        if name not in self._names and name in known:
            opened = lru_cache(maxsize=2)(lambda row: VideoFile(self._blob(row)))
            return lambda rows: self._filmed(known[name], rows, opened)
        column = self._known(name, known)
        if "binary" not in str(self._rows.schema.field(column).type):
            raise self.bad(
                name, f"must hold JPEG images; is {self._rows.schema.field(column).type}"
            )
        return lambda rows: self._images(column, rows)

    def _table(self, path: Path) -> Path:
        if path.suffix == LANCE_SUFFIX:
            whole = path.with_name(path.stem.rpartition("_")[0] + LANCE_SUFFIX)
            if path.stem.endswith(_BESIDE) and whole.is_dir():
                raise self.unusable(f"is a part of the dataset {whole.name}; name that")
            return path
        tables = sorted(
            one for one in path.glob(f"*{LANCE_SUFFIX}") if not one.stem.endswith(_BESIDE)
        )
        if len(tables) != 1:
            found = [one.name for one in tables]
            raise self.unusable(f"must name one Lance table; this folder holds {found}")
        return tables[0]

    def _opened(self, path: Path) -> Any:  # noqa: ANN401 - lance.LanceDataset
        try:
            return self._lance.dataset(str(path))
        except _BROKEN as error:
            raise self.unusable(f"is no readable Lance table: {error!s:.160}") from error

    def _known(self, name: str, more: Any = ()) -> str:  # noqa: ANN401 - names
        """The column; its writer puts an underscore for each dot."""
        for spelled in (name, name.replace(".", "_")):
            if spelled in self._names and spelled not in (_EPISODE, _STEP):
                return spelled
        raise self.missing(name, {*self._names, *more} - {_EPISODE, _STEP})

    def column_names(self) -> list[str]:
        """The columns of the table and of its videos."""
        return sorted({*self._names, *self._videos()} - {_EPISODE, _STEP})

    def _values(self, name: str) -> NDArray[Any]:
        try:
            return arrow_numbers(self._rows.to_table(columns=[name]).column(name))
        except _BROKEN as error:
            raise self.bad(name, f"cannot be read: {error}") from error

    def _images(self, name: str, rows: NDArray[np.int64]) -> Iterator[NDArray[np.uint8]]:
        for start in range(0, len(rows), _TAKEN):
            try:
                taken = self._rows.take(rows[start : start + _TAKEN].tolist(), columns=[name])
            except _BROKEN as error:
                raise Damaged(f"cannot be read: {error}") from error
            for image in taken.column(name):
                yield decode_image(image.as_py() or b"")

    def _videos(self) -> dict[str, dict[int, int]]:
        """Row of each episode's video in the table of videos, by column; none without one."""
        beside = self.path.with_name(f"{self.path.stem}_videos{LANCE_SUFFIX}")
        if not beside.is_dir():
            return {}
        self._films = self._opened(beside)
        try:
            listed = self._films.to_table(columns=[_EPISODE, "video_key"]).to_pylist()
        except _BROKEN as error:
            raise self.unusable(f"has a table of videos that cannot be read: {error}") from error
        found: dict[str, dict[int, int]] = {}
        for row, one in enumerate(listed):
            found.setdefault(one["video_key"], {})[one[_EPISODE]] = row
        return found

    def _blob(self, row: int) -> bytes:
        try:
            (blob,) = self._films.take_blobs(blob_column="video_bytes", indices=[row])
            with blob:
                content: bytes = blob.readall()
        except _BROKEN as error:
            raise Damaged(f"cannot be read: {error}") from error
        return content

    def _filmed(
        self,
        films: dict[int, int],
        rows: NDArray[np.int64],
        opened: Any,  # noqa: ANN401 - cached
    ) -> Iterator[NDArray[np.uint8]]:
        for episode, _, steps in self.by_episode(rows):
            film = films.get(int(self._numbers[episode]))
            if film is None:
                raise Damaged(f"has no video of episode {self._numbers[episode]}")
            yield from opened(film).frames(steps)

"""Reads LeRobot datasets, layouts 2.0, 2.1 and 3.0: Parquet beside MP4, without LeRobot's library.

The layout is the one that LeRobot documents: ``meta/info.json`` names the features and where files
lie; 2.x keeps a Parquet file and a video an episode, 3.0 many episodes in each
(huggingface.co/docs/lerobot/lerobot-dataset-v3).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from acpc.arrays import NDArray
from acpc.datasets import MAX_ROWS

from acpc_lab.datasets.tables import (
    Damaged,
    ReadFrames,
    TabledDataset,
    VideoFile,
    arrow_numbers,
    decode_image,
)
from acpc_lab.extras import load

# What files raise that do not say what they should: a RuntimeError is one nested too deep.
_BROKEN = (
    OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError,
)  # fmt: skip
# A name and no width beyond two digits: of what else a format may ask, memory has no limit.
_TEMPLATE = re.compile(r"([^{}]|\{\w+(:0?[0-9]{0,2}d?)?\})*")
_TIME, _EPISODE = "timestamp", "episode_index"
# What stable-worldmodel calls these columns.
_STATE = {"proprio": "observation.state"}


class LeRobotDataset(TabledDataset):
    """A local LeRobot folder.

    The task's column ``pixels`` may also be the only camera, and ``proprio`` the state. Raises
    FailedPrecondition: It is damaged, or of another version.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._parquet = load("pyarrow.parquet", "parquet")
        self._info = self._read_info()
        self._features: Mapping[str, Any] = self._info["features"]
        try:
            episodes = self._listed_episodes()
            self._numbers = [int(one[_EPISODE]) for one in episodes]
            lengths = np.array([int(one["length"]) for one in episodes], np.int64)
        except _BROKEN as error:
            raise self.unusable(f"has no readable list of episodes in meta: {error}") from error
        self._episodes = dict(zip(self._numbers, episodes, strict=True))
        self.set_episodes(lengths)
        own = self.numbers(_EPISODE).reshape(-1)
        fits = len(own) == lengths.sum()
        if not (fits and np.array_equal(own, np.repeat(self._numbers, lengths))):
            raise self.bad(_EPISODE, f"of its {len(own)} rows does not fit the episodes in meta")

    def column_names(self) -> list[str]:
        """The features."""
        return sorted(self._features)

    def numbers(self, name: str) -> NDArray[Any]:
        """The values of a feature, from all files in order."""
        name = self._known(name)
        arrow = load("pyarrow", "parquet")
        try:
            self._check_count(name)
            parts = [self._parquet.read_table(file, columns=[name]) for file in self._files()]
            return arrow_numbers(arrow.concat_tables(parts).column(name))
        except _BROKEN as error:
            raise self.bad(name, f"cannot be read: {error}") from error

    def _check_count(self, name: str) -> None:
        """Rejects, with ValueError, more numbers than are read: a small file may hold billions."""
        count = 0
        for file in self._files():
            found = self._parquet.read_metadata(file)
            for group in map(found.row_group, range(found.num_row_groups)):
                columns = map(group.column, range(group.num_columns))
                count += sum(
                    column.num_values
                    for column in columns
                    if f"{column.path_in_schema}.".startswith(f"{name}.")
                )
        if count > MAX_ROWS:
            raise ValueError(f"holds {count} numbers; {MAX_ROWS} are read")

    def frames(self, name: str) -> ReadFrames:
        """The reader of a camera, filmed or kept as images."""
        name = self._known(name)
        kind = self._features[name].get("dtype")
        if kind == "image":
            return lambda rows: self._images(name, rows)
        if kind != "video":
            raise self.bad(name, f"must be a video or images; is {kind!r}")
        times = self.numbers(_TIME).reshape(-1).astype(np.float64)
        opened = lru_cache(maxsize=4)(VideoFile)
        return lambda rows: self._filmed(name, rows, times, opened)

    def _read_info(self) -> Mapping[str, Any]:
        try:
            info = json.loads((self.path / "meta" / "info.json").read_text("utf-8"))
            version, features = str(info["codebase_version"]), info["features"]
            self._newest = version.startswith("v3.")
            self._fps = float(info["fps"])
            if not all(isinstance(one, dict) for one in features.values()) or not self._fps > 0:
                raise ValueError("features or fps make no sense")
        except _BROKEN as error:
            raise self.unusable(f"has no readable meta/info.json: {error!r:.200}") from error
        if not self._newest and not version.startswith("v2."):
            raise self.unusable(
                f"is of LeRobot's layout {version}; 2.0, 2.1 and 3.0 are read: convert it"
            )
        if info.get("storage_format", "parquet") != "parquet":
            raise self.unusable(
                f"is stored as {info['storage_format']}; LeRobot's own Parquet and MP4 are read"
            )
        return info  # type: ignore[no-any-return]

    def _listed_episodes(self) -> list[dict[str, Any]]:
        if not self._newest:
            text = (self.path / "meta" / "episodes.jsonl").read_text("utf-8")
            return [json.loads(line) for line in text.splitlines() if line.strip()]
        listed: list[dict[str, Any]] = []
        for file in sorted((self.path / "meta" / "episodes").glob("*/*.parquet")):
            names = self._parquet.read_schema(file).names
            kept = [name for name in names if not name.startswith("stats/")]
            listed += self._parquet.read_table(file, columns=kept).to_pylist()
        return listed

    def _known(self, name: str) -> str:
        cameras = [
            one for one, about in self._features.items() if about.get("dtype") in ("video", "image")
        ]
        for spelled in (name, _STATE.get(name, name)):
            if spelled in self._features:
                return spelled
        if name == "pixels" and len(cameras) == 1:
            return cameras[0]
        raise self.missing(name, self._features)

    def _files(self) -> list[Path]:
        """The Parquet files, in the order of their rows."""
        return list(dict.fromkeys(self._file("data", number) for number in self._numbers))

    def _file(self, what: str, number: int, key: str = "") -> Path:
        where = f"videos/{key}" if key else what
        if self._newest:
            names = ("chunk_index", "file_index")
            places = {name: int(self._episodes[number][f"{where}/{name}"]) for name in names}
        else:
            size = int(self._info["chunks_size"])
            places = {"episode_chunk": number // size, "episode_index": number}
        template = str(self._info["video_path" if key else "data_path"])
        if not _TEMPLATE.fullmatch(template):
            raise ValueError(f"{template!r:.200} is no template of a file's name")
        file = PurePosixPath(template.format(video_key=key, **places))
        if file.is_absolute() or ".." in file.parts:
            raise ValueError(f"{file} leaves the dataset")
        return self.path / file

    def _filmed(
        self,
        key: str,
        rows: NDArray[np.int64],
        times: NDArray[np.float64],
        opened: Any,  # noqa: ANN401 - a cached class
    ) -> Iterator[NDArray[np.uint8]]:
        for episode, own, _ in self.by_episode(rows):
            number = self._numbers[episode]
            try:
                file = self._file("videos", number, key)
                begins = float(self._episodes[number].get(f"videos/{key}/from_timestamp") or 0.0)
            except _BROKEN as error:
                raise Damaged(f"meta does not name its video: {error!r}") from error
            if not file.is_file():
                raise Damaged(f"its file {file.relative_to(self.path)} does not exist")
            video = opened(file)
            yield from video.frames(video.nearest(begins + times[own], within=0.5 / self._fps))

    def _images(self, key: str, rows: NDArray[np.int64]) -> Iterator[NDArray[np.uint8]]:
        """Images in Parquet, a row group at a time."""
        first = 0
        for file in self._files():
            try:
                opened = self._parquet.ParquetFile(file)
                for group in range(opened.num_row_groups):
                    last = first + opened.metadata.row_group(group).num_rows
                    own = rows[(rows >= first) & (rows < last)]
                    if own.size:
                        kept = opened.read_row_group(group, columns=[key]).column(key)
                        for row in (own - first).tolist():
                            yield decode_image((kept[row].as_py() or {}).get("bytes") or b"")
                    first = last
            except Damaged:
                raise
            except _BROKEN as error:
                raise Damaged(f"cannot be read: {error}") from error

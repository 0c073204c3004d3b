"""Reads stable-worldmodel's folder and video datasets: NPZ columns, frames as images or videos."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from acpc.arrays import NDArray
from acpc_client import read_npz
from acpc_client.errors import ArgumentError

from acpc_lab.datasets.tables import Damaged, ReadFrames, TabledDataset, VideoFile, decode_image

_INDEX = ("ep_len", "ep_offset")
_IMAGES = (".jpeg", ".jpg", ".png")


class FolderDataset(TabledDataset):
    """``<column>.npz`` beside ``<column>/ep_<i>_step_<j>.jpeg`` or ``<column>/ep_<i>.mp4``.

    Raises FailedPrecondition: The episodes are missing, damaged or make no sense.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.set_episodes(*(self._array(name) for name in _INDEX))

    def numbers(self, name: str) -> NDArray[Any]:
        """The array of ``<name>.npz``."""
        if name not in (known := self._arrays()):
            raise self.missing(name, known)
        return self._array(name)

    def frames(self, name: str) -> ReadFrames:
        """The reader of the folder ``<name>``."""
        if name not in (known := self._folders()):
            raise self.missing(name, known)
        folder = self.path / name
        if not any(folder.glob("*.mp4")):
            return lambda rows: self._images(folder, rows)
        opened = lru_cache(maxsize=8)(VideoFile)
        return lambda rows: self._videos(folder, rows, opened)

    def column_names(self) -> list[str]:
        """The arrays, and the folders of images or videos."""
        return sorted(self._arrays() | self._folders())

    def _arrays(self) -> set[str]:
        return {found.stem for found in self.path.glob("*.npz")} - {*_INDEX}

    def _folders(self) -> set[str]:
        return {found.name for found in self.path.iterdir() if found.is_dir()}

    def _array(self, name: str) -> NDArray[Any]:
        try:
            return read_npz(self.path / f"{name}.npz")["arr_0"]
        except ArgumentError as error:
            raise self.bad(name, error.description) from error
        except KeyError as error:
            raise self.bad(name, "is an NPZ file without the array arr_0") from error

    def _images(self, folder: Path, rows: NDArray[np.int64]) -> Iterator[NDArray[np.uint8]]:
        for episode, _, steps in self.by_episode(rows):
            for step in steps.tolist():
                name = f"ep_{episode}_step_{step}"
                files = [folder / f"{name}{suffix}" for suffix in _IMAGES]
                file = next((one for one in files if one.is_file()), None)
                if file is None:
                    raise Damaged(f"its file {folder.name}/{name}.jpeg does not exist")
                yield decode_image(file.read_bytes())

    def _videos(
        self,
        folder: Path,
        rows: NDArray[np.int64],
        opened: Any,  # noqa: ANN401 - a cached class
    ) -> Iterator[NDArray[np.uint8]]:
        for episode, _, steps in self.by_episode(rows):
            file = folder / f"ep_{episode}.mp4"
            if not file.is_file():
                raise Damaged(f"its file {folder.name}/{file.name} does not exist")
            video = opened(file)
            if len(video) < self.lengths[episode]:
                raise Damaged(
                    f"its video {file.name} has {len(video)} frames, but episode {episode} has "
                    f"{self.lengths[episode]} rows"
                )
            yield from video.frames(steps)

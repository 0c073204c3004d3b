"""Reads anchors from an NPZ archive or a folder of NPY files; frames are read in slices."""

from __future__ import annotations

import operator
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from acpc.arrays import NDArray
from acpc.contract import SMALL_ARRAYS
from acpc_client import AnchorArrays
from acpc_client.errors import ArgumentError

HISTORY = 3
"""Frames of history where nothing says how many: the paper's."""

_NEEDED = ("frames", *(name for name in SMALL_ARRAYS if name != "trajectory_ids"))
_OPTIONAL = ("trajectory_ids", "proprio")
_BROKEN = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error)


def load_anchors(path: Path, history: int | None = None) -> AnchorArrays:
    """The anchors of an NPZ file, or of a folder with one NPY file an array.

    Both hold ``frames``, ``action_blocks``, ``endpoint_states``, ``labels``, ``anchor_ids`` and,
    if they are known, ``trajectory_ids``, ``proprio`` and ``history``. Objects are never unpickled.

    Args:
        path: The file or the folder.
        history: Frames of the history; None: what the file says, or 3.

    Raises ArgumentError: Not such a file, or arrays that are missing, unknown or do not fit.
    """
    arrays = _read(path, "path", "anchors", "frames")
    given = arrays.pop("history", None)
    missing = [name for name in _NEEDED if name not in arrays]
    unknown = [name for name in arrays if name not in (*_NEEDED, *_OPTIONAL)]
    if missing or unknown:
        wrong = f"missing {', '.join(missing)}" if missing else f"unknown {', '.join(unknown)}"
        wanted = f"{', '.join(_NEEDED)} and optionally {', '.join(_OPTIONAL)} and history"
        if "frames" in missing and path.suffix == ".npz":
            wanted += "; of other files: docs/anchors.md, 'Other formats'"
        raise ArgumentError("path", f"{path}: {wrong}; wanted {wanted}")
    if history is None:
        try:
            history = HISTORY if given is None else operator.index(given.item())
        except (TypeError, ValueError) as error:
            raise ArgumentError("path", f"{path}: history must be one whole number") from error
    return AnchorArrays(history=history, **arrays)


def load_views(*paths: Path) -> dict[str, Any]:
    """Groups of views by name, as ``Anchors.upload`` takes them: an array each, read in slices.

    A path is an NPZ file with an array for each group, or a folder with one NPY file a group.

    Raises ArgumentError: Not such a file, or a group that several hold.
    """
    every: dict[str, Any] = {}
    for path in paths:
        groups = _read(path, "views", "views")
        if not groups:
            wanted = "wanted one for each group of views"
            raise ArgumentError("views", f"{path} holds no array; {wanted}")
        for group in every.keys() & groups:
            raise ArgumentError("views", f"{path} holds the group {group!r}, as another file does")
        every |= groups
    return every


def _read(path: Path, field: str, what: str, large: str = "") -> dict[str, Any]:
    """The arrays of a folder or of an archive; ``large`` is read in slices, empty: every one."""
    try:
        if path.is_dir():
            return {
                file.stem: np.load(
                    file, "r" if file.stem == (large or file.stem) else None, allow_pickle=False
                )
                for file in sorted(path.glob("*.npy"))
            }
        found = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            raise ValueError("it holds one array")
        with found as archive:
            return {
                name: ArchivedFrames(path, name) if name == (large or name) else archive[name]
                for name in archive.files
            }
    except _BROKEN as error:
        raise ArgumentError(field, f"{path} cannot be read as {what}: {error}") from error


class ArchivedFrames:
    """A member of an NPZ file, of which only what is asked for is in memory.

    Going back reads the member from its beginning again. Not for several threads at a time.

    Attributes:
        shape: Of the whole array, anchors first.

    Raises ValueError: The member cannot be read in slices.
    """

    def __init__(self, path: Path, name: str = "frames") -> None:
        self._path, self._name = path, name
        self._file = zipfile.ZipFile(path).open(f"{name}.npy")  # noqa: SIM115 - for all slices
        form = np.lib.format
        first = form.read_magic(self._file) == (1, 0)
        header = form.read_array_header_1_0 if first else form.read_array_header_2_0
        self.shape, fortran, self.dtype = header(self._file)
        if fortran or self.dtype.hasobject or not self.shape:
            raise ValueError(f"{name} must be one plain array in C order")
        self._begin = self._file.tell()
        self._row = int(np.prod(self.shape[1:])) * self.dtype.itemsize

    def __getitem__(self, part: slice, /) -> NDArray[Any]:
        """The frames of consecutive anchors. Raises ArgumentError: The file is damaged."""
        start, stop, _ = part.indices(self.shape[0])
        place = self._begin + start * self._row
        try:
            if self._file.tell() != place:  # to seek, even to here, may end the check of its CRC
                self._file.seek(place)
            data = self._file.read((stop - start) * self._row)
            return np.frombuffer(data, self.dtype).reshape(stop - start, *self.shape[1:])
        except _BROKEN as error:
            raise ArgumentError(
                "path", f"{self._path}: {self._name} are damaged: {error}"
            ) from error

"""Reads the public HDF5 files: a dataset per column, ``ep_len`` and ``ep_offset`` beside them.

Where these are absent, episodes are the runs of rows with one ``ep_idx`` (``episode_idx``).

A file is untrusted: nothing in it may name another file, ask for Python objects or make its reader
allocate more than its limits before that is checked. Columns are read in slices so that each stored
chunk is decompressed once.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

# No plug-in (filter, connector or driver) is loaded because the environment or a file names one: it
# is code. HDF5 reads these once, when it is first imported. Ours are registered by hdf5plugin.
os.environ["HDF5_PLUGIN_PRELOAD"] = "::"
# A file that is no HDF5 file makes the library try every connector on the path, preload or not.
os.environ["HDF5_PLUGIN_PATH"] = ""
for _name in ("HDF5_VOL_CONNECTOR", "HDF5_DRIVER", "HDF5_DRIVER_CONFIG"):
    os.environ.pop(_name, None)

import h5py

while h5py.h5pl.size():  # where h5py was imported before this module
    h5py.h5pl.remove(0)

# ruff: noqa: E402 - the next import searches the path
import hdf5plugin  # noqa: F401  registers the compression filters
import numpy as np
from jaxtyping import Int64, Shaped

from acpc.contract import FailedPrecondition
from acpc.datasets.columns import HDF5_SUFFIXES, MAX_ROWS, Dataset, DatasetColumn, unread

EPISODE_COLUMNS, STEP_COLUMN = ("ep_idx", "episode_idx"), "step_idx"
_READ_BYTES = 2**25
MAX_CHUNK_BYTES = 2**28
"""A chunk is decompressed whole, so this bounds what one read allocates: 256 MiB."""

_CHUNK_CACHE_BYTES = 2**24


def _newer(error: Exception) -> str:
    """Why the installed HDF5 does not know a format version, and what to do; '' of other errors."""
    if "version number" not in str(error):
        return ""
    return (
        f"here: it was written by a newer HDF5 than {h5py.version.hdf5_version}, or is damaged; "
        "pip install --upgrade h5py, or write the file with h5py.File(path, 'w', libver='v114')"
        f" ({error})"
    )


class Hdf5Column(DatasetColumn):
    """One column: an array of ``shape`` (rows, ...), read in slices."""

    def __init__(
        self, dataset: h5py.Dataset, file: str, name: str, check: Callable[[], None]
    ) -> None:
        self._dataset, self._file, self._check = dataset, file, check
        self.name, self.shape, self.dtype = name, dataset.shape, dataset.dtype

    @property
    def _row_bytes(self) -> int:
        return max(1, int(self.dtype.itemsize) * self.width)

    def read(self, start: int, stop: int) -> Shaped[np.ndarray, "rows ..."]:
        """Rows [start, stop). Raises FailedPrecondition: the stored bytes are damaged."""
        self._check()
        try:
            rows: np.ndarray = self._dataset[start:stop]
        except (OSError, RuntimeError, ValueError) as error:
            raise FailedPrecondition(
                f"dataset {self._file!r}, column {self.name!r}: rows {start} to {stop - 1} cannot "
                f"be read, the file is damaged: {error}"
            ) from error
        return rows

    def blocks(self) -> Iterator[Shaped[np.ndarray, "rows ..."]]:
        """The whole column, some megabytes at a time."""
        step = max(1, _READ_BYTES // self._row_bytes)
        for start in range(0, self.shape[0], step):
            yield self.read(start, min(start + step, self.shape[0]))

    def gather(self, rows: Int64[np.ndarray, "..."]) -> Shaped[np.ndarray, "..."]:
        """The given rows, in any order and as often as wanted; each chunk is read once."""
        flat = rows.reshape(-1)
        out = np.empty((flat.size, *self.shape[1:]), self.dtype)
        order = np.argsort(flat, kind="stable")
        # A read costs more than the chunks in it, so neighbouring ones are read together: it ends
        # before a chunk that is skipped, and every few megabytes.
        stored = int(self._dataset.chunks[0]) if self._dataset.chunks else 1
        chunk, together = flat[order] // stored, max(1, _READ_BYTES // (self._row_bytes * stored))
        apart = (np.diff(chunk) > 1) | (np.diff(chunk // together) > 0)
        for group in np.split(order, np.flatnonzero(apart) + 1):
            if group.size:
                first, last = int(flat[group[0]]), int(flat[group[-1]])
                out[group] = self.read(first, last + 1)[flat[group] - first]
        return out.reshape(*rows.shape, *self.shape[1:])


class Hdf5Dataset(Dataset):
    """An open dataset file."""

    def __init__(self, file: h5py.File, name: str, check: Callable[[], None]) -> None:
        self._file, self.name, self._check = file, name, check
        self._index_columns = self._check_layout()
        if "ep_len" in self._index_columns:
            self.lengths, self.offsets = self._index("ep_len"), self._index("ep_offset")
        else:
            self.lengths, self.offsets = self._runs(*self._index_columns)
        self.check_episodes()

    @classmethod
    @contextmanager
    def open(
        cls, path: Path, name: str, check: Callable[[], None] = lambda: None
    ) -> Iterator["Hdf5Dataset"]:
        """The file, which errors call ``name``, open for reading inside the ``with``.

        ``check`` is called before every read of rows and may raise to end them.

        Raises FailedPrecondition: Not a readable HDF5 file, or its episodes make no sense.
        """
        try:
            file = h5py.File(path, "r", locking="best-effort", rdcc_nbytes=_CHUNK_CACHE_BYTES)
        except OSError as error:
            if not name.endswith(HDF5_SUFFIXES):
                raise FailedPrecondition(
                    f"dataset {unread(name)}", reason="DATASET_FORMAT"
                ) from error
            why = _newer(error) or f"(damaged, truncated or still being written?): {error}"
            raise FailedPrecondition(
                f"dataset {name!r} is not a readable HDF5 file {why}"
            ) from error
        with file:
            yield cls(file, name, check)

    def identity(self) -> tuple[int, ...]:
        """Changes when the open file is written to; no other file has it."""
        state = os.fstat(self._file.id.get_vfd_handle())
        return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns

    def column_names(self) -> list[str]:
        """The datasets and groups at the root."""
        return sorted(set(self._file) - set(self._index_columns))

    def numeric_column(self, name: str) -> Hdf5Column:
        """A column of numbers, (rows,) or (rows, width); FailedPrecondition for any other kind."""
        found = self._column(name)
        self.check_numbers(name, found.dtype, found.shape)
        return found

    def pixel_column(self, name: str) -> Hdf5Column:
        """A column of RGB frames, uint8 (rows, height, width, 3); FailedPrecondition otherwise."""
        found = self._column(name)
        self.check_pixels(name, found.dtype, found.shape)
        return found

    def _column(self, name: str) -> Hdf5Column:
        """The dataset ``name`` of the root group, if it keeps all its bytes in this file."""
        with self._header(name):
            links = self._file.id.links  # to ask the file for the name itself would follow a link
            if name in ("", ".") or "/" in name or not links.exists(name.encode()):
                raise self.missing(name, self._file)
            if links.get_info(name.encode()).type != h5py.h5l.TYPE_HARD:
                raise self.bad(name, "is a soft or external link; links are not followed")
            found = self._file[name]
            if not isinstance(found, h5py.Dataset):
                raise self.bad(name, "is a group or a type, not a dataset")
            if found.is_virtual or found.external:
                raise self.bad(name, "keeps its rows in other files (virtual or external storage)")
            if found.dtype.kind not in "fiub" or found.dtype.subdtype is not None:
                raise self.bad(name, f"must hold plain numbers; is {found.dtype} {found.shape}")
            if found.ndim == 0 or found.shape[0] > MAX_ROWS:
                raise self.bad(name, f"must have 1 axis or more and at most {MAX_ROWS} rows")
            chunk_bytes = found.dtype.itemsize * int(np.prod(found.chunks or (0,), dtype=object))
            if chunk_bytes > MAX_CHUNK_BYTES:
                raise self.bad(
                    name, f"has chunks of {chunk_bytes} bytes; at most {MAX_CHUNK_BYTES} are read"
                )
            properties = found.id.get_create_plist()
            for position in range(properties.get_nfilters()):
                code, _, _, label = properties.get_filter(position)
                if not h5py.h5z.filter_avail(code):
                    raise self.bad(name, f"needs HDF5 filter {code} {label!r}, not installed here")
        return Hdf5Column(found, self.name, name, self._check)

    @contextmanager
    def _header(self, name: str) -> Iterator[None]:
        try:
            yield
        except (OSError, KeyError, RuntimeError, TypeError, ValueError) as error:
            why = _newer(error)
            wrong = f"cannot be read {why}" if why else f"has a damaged header: {error}"
            raise self.bad(name, wrong) from error

    def _check_layout(self) -> tuple[str, ...]:
        """The columns that index the episodes: lengths and offsets, or a row's episode and step.

        FailedPrecondition where there are none; says what the file is instead.
        """
        with self._header("ep_len"):
            if "ep_len" in (names := sorted(self._file)):
                return "ep_len", "ep_offset"
            if found := next((name for name in EPISODE_COLUMNS if name in names), ""):
                return (found, STEP_COLUMN) if STEP_COLUMN in names else (found,)
        raise FailedPrecondition(
            f"dataset {self.name!r} is HDF5 of another layout, with {names[:20]} at its root; "
            "wanted: a dataset per column beside ep_len and ep_offset, or beside ep_idx and "
            "step_idx (docs/anchors.md, 'Other formats')",
            reason="DATASET_FORMAT",
        )

    def _runs(self, episode: str, step: str = "") -> tuple[np.ndarray, np.ndarray]:
        """Lengths and offsets of the runs of rows that one episode has, in the file's order.

        FailedPrecondition: The rows of an episode are not together, or its steps not 0, 1 and on.
        """
        numbers = self._whole_numbers(episode)
        starts = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 1))
        named, first = np.unique(numbers[starts], return_index=True)
        if len(named) < len(starts):
            again = int(np.setdiff1d(np.arange(len(starts)), first)[0])
            row = starts[again]
            raise self.bad(episode, f"has episode {numbers[row]} again at row {row}; sort the rows")
        lengths = np.diff(starts, append=len(numbers))
        if step:
            steps = self._whole_numbers(step)
            wanted = np.arange(len(numbers)) - np.repeat(starts, lengths)
            wrong = np.flatnonzero(steps[: len(wanted)] != wanted[: len(steps)])
            if len(steps) != len(numbers) or wrong.size:
                row = int(wrong[0]) if wrong.size else min(len(steps), len(numbers))
                raise self.bad(
                    step, f"does not count the steps of episodes from 0 at row {row}; sort the rows"
                )
        self.check_index(episode, lengths.dtype, lengths.shape)
        return lengths.astype(np.int64), starts.astype(np.int64)

    def _whole_numbers(self, name: str) -> np.ndarray:
        found = self._column(name)
        if found.dtype.kind not in "iu" or found.shape[1:] not in ((), (1,)) or not found.shape[0]:
            raise self.bad(name, f"must hold a whole number a row; is {found.dtype} {found.shape}")
        numbers: np.ndarray = np.concatenate([*found.blocks()]).reshape(-1).astype(np.int64)
        return numbers

    def _index(self, name: str) -> Int64[np.ndarray, "episodes"]:
        found = self._column(name)
        self.check_index(name, found.dtype, found.shape)  # before it is read
        return self.episode_numbers(name, found.read(0, found.shape[0]))

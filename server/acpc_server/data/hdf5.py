"""Reads the public HDF5 files: a dataset per column, ``ep_len`` and ``ep_offset`` beside them.

A file is untrusted: nothing in it may name another file, ask for Python objects or make the server
allocate more than its limits before that is checked. Columns are read in slices so that each stored
chunk is decompressed once.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# No plug-in (filter, connector or driver) is loaded because the environment or a file names one: it
# is code. HDF5 reads this once, when it is first imported. Ours are registered by hdf5plugin.
os.environ["HDF5_PLUGIN_PRELOAD"] = "::"

import h5py
import hdf5plugin  # noqa: F401  registers the compression filters
import numpy as np
from acpc.contract import did_you_mean
from jaxtyping import Int64, Shaped

from acpc_server.data.paths import resolve_below
from acpc_server.errors import FailedPrecondition
from acpc_server.numerics import Check, go_on

_READ_BYTES = 2**25


class Column:
    """One column: an array of ``shape`` (rows, ...), read in slices."""

    def __init__(self, dataset: h5py.Dataset, file: str, name: str, check: Check = go_on) -> None:
        self._dataset = dataset
        self._file = file
        self._check = check
        self.name = name
        self.shape: tuple[int, ...] = dataset.shape

    @property
    def width(self) -> int:
        """Numbers in a row."""
        return int(np.prod(self.shape[1:]))

    @property
    def _row_bytes(self) -> int:
        return max(1, int(self._dataset.dtype.itemsize) * self.width)

    @property
    def rows_per_chunk(self) -> int:
        """Rows that are stored, and so decompressed, together."""
        return int(self._dataset.chunks[0]) if self._dataset.chunks else 1

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
        out = np.empty((flat.size, *self.shape[1:]), self._dataset.dtype)
        order = np.argsort(flat, kind="stable")
        for group in np.split(order, self._breaks(flat[order])):
            if group.size:
                first, last = int(flat[group[0]]), int(flat[group[-1]])
                out[group] = self.read(first, last + 1)[flat[group] - first]
        return out.reshape(*rows.shape, *self.shape[1:])

    def _breaks(self, ordered: Int64[np.ndarray, "n"]) -> Int64[np.ndarray, "breaks"]:
        """Where to end a read: before a chunk that is skipped, and at every few megabytes."""
        # A read costs more than the chunks in it, so neighbouring ones are read together.
        chunk = ordered // self.rows_per_chunk
        together = max(1, _READ_BYTES // (self._row_bytes * self.rows_per_chunk))
        apart = (np.diff(chunk) > 1) | (np.diff(chunk // together) > 0)
        return np.flatnonzero(apart) + 1


MAX_ROWS = 2**27
"""Rows of a column, 134 million; also bounds the windows and the permutation over them."""

MAX_EPISODES = 2**24
MAX_NUMERIC_BYTES = 2**34
"""Bytes of a column of numbers, 16 GiB: statistics read all of it, even what was never written."""

MAX_FRAME_SIDE = 4096
MAX_CHUNK_BYTES = 2**28
"""A chunk is decompressed whole, so this bounds what one read allocates: 256 MiB."""

_CHUNK_CACHE_BYTES = 2**24


class Hdf5Dataset:
    """An open dataset file.

    Attributes:
        name: Path below the root.
        lengths: Rows of each episode, int64 (episodes,); 1 occurs, and 0 is an empty episode.
        offsets: First row of each episode, int64 (episodes,).
    """

    lengths: Int64[np.ndarray, "episodes"]
    offsets: Int64[np.ndarray, "episodes"]

    def __init__(self, file: h5py.File, name: str, check: Check = go_on) -> None:
        self._file = file
        self._check = check
        self.name = name
        self.lengths = self._index("ep_len")
        self.offsets = self._index("ep_offset")
        self._check_episodes()
        self._rows_used = int((self.offsets + self.lengths).max(initial=0))

    @classmethod
    @contextmanager
    def open(cls, root: Path, name: str, check: Check = go_on) -> Iterator["Hdf5Dataset"]:
        """The file ``name`` below ``root``, open for reading inside the ``with``.

        ``check`` is called before every read of rows and may raise to end them.

        Raises:
            InvalidArgument, PermissionDenied, NotFound: As ``resolve_below``, field ``dataset``.
            FailedPrecondition: Not a readable HDF5 file, or its episodes make no sense.
        """
        path = resolve_below(root, name, field="dataset")
        try:
            file = h5py.File(path, "r", locking="best-effort", rdcc_nbytes=_CHUNK_CACHE_BYTES)
        except OSError as error:
            raise FailedPrecondition(
                f"dataset {name!r} is not a readable HDF5 file (damaged, truncated or still being "
                f"written?): {error}"
            ) from error
        with file:
            yield cls(file, name, check)

    def identity(self) -> tuple[int, ...]:
        """Changes when the open file is written to; no other file has it."""
        state = os.fstat(self._file.id.get_vfd_handle())
        return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns

    def numeric_column(self, name: str) -> Column:
        """A column of numbers, (rows,) or (rows, width); FailedPrecondition for any other kind."""
        found = self._dataset(name)
        if found.dtype.kind not in "fiu" or found.ndim not in (1, 2):
            raise self._bad(
                name, f"must hold numbers of shape (rows,) or (rows, width); is {_kind(found)}"
            )
        size = int(np.prod(found.shape[1:], dtype=object)) * found.shape[0] * found.dtype.itemsize
        if not 1 <= size <= MAX_NUMERIC_BYTES:
            raise self._bad(name, f"holds {size} bytes; 1 to {MAX_NUMERIC_BYTES} are read")
        return self._covering(found, name)

    def pixel_column(self, name: str) -> Column:
        """A column of RGB frames, uint8 (rows, height, width, 3); FailedPrecondition otherwise."""
        found = self._dataset(name)
        if found.dtype != np.uint8:
            raise self._bad(name, f"must hold uint8 frames; is {_kind(found)}")
        if found.ndim != 4 or found.shape[3] != 3:
            raise self._bad(
                name, f"must have shape (rows, height, width, 3), RGB last; is {_kind(found)}"
            )
        if not all(1 <= side <= MAX_FRAME_SIDE for side in found.shape[1:3]):
            raise self._bad(name, f"has frames with sides outside 1 to {MAX_FRAME_SIDE} pixels")
        return self._covering(found, name)

    def _covering(self, found: h5py.Dataset, name: str) -> Column:
        if found.shape[0] < self._rows_used:
            episode = int(np.argmax(self.offsets + self.lengths))
            raise self._bad(
                name,
                f"has {found.shape[0]} rows, but episode {episode} ends at row {self._rows_used}",
            )
        return Column(found, self.name, name, self._check)

    def _dataset(self, name: str) -> h5py.Dataset:
        """The dataset ``name`` of the root group, if it keeps all its bytes in this file."""
        with self._header(name):
            self._check_link(name)
            found = self._file[name]
            if not isinstance(found, h5py.Dataset):
                raise self._bad(name, "is a group or a type, not a dataset")
            if found.is_virtual or found.external:
                raise self._bad(name, "keeps its rows in other files (virtual or external storage)")
            if found.dtype.kind not in "fiub" or found.dtype.subdtype is not None:
                raise self._bad(name, f"must hold plain numbers; is {_kind(found)}")
            if found.ndim == 0 or found.shape[0] > MAX_ROWS:
                raise self._bad(name, f"must have 1 axis or more and at most {MAX_ROWS} rows")
            chunk_bytes = found.dtype.itemsize * int(np.prod(found.chunks or (0,), dtype=object))
            if chunk_bytes > MAX_CHUNK_BYTES:
                raise self._bad(
                    name, f"has chunks of {chunk_bytes} bytes; at most {MAX_CHUNK_BYTES} are read"
                )
            self._check_filters(found, name)
        return found

    @contextmanager
    def _header(self, name: str) -> Iterator[None]:
        try:
            yield
        except (OSError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise self._bad(name, f"has a damaged header: {error}") from error

    def _check_link(self, name: str) -> None:
        links = self._file.id.links  # to ask the file for the name itself would follow a link
        if name in ("", ".") or "/" in name or not links.exists(name.encode()):
            guess = did_you_mean(name, self._file)
            there = f"there are {sorted(self._file)}"
            raise self._bad(name, "; ".join(filter(None, ["does not exist", guess, there])))
        if links.get_info(name.encode()).type != h5py.h5l.TYPE_HARD:
            raise self._bad(name, "is a soft or external link; links are not followed")

    def _check_filters(self, found: h5py.Dataset, name: str) -> None:
        properties = found.id.get_create_plist()
        for position in range(properties.get_nfilters()):
            code, _, _, label = properties.get_filter(position)
            if not h5py.h5z.filter_avail(code):
                raise self._bad(name, f"needs HDF5 filter {code} {label!r}, not installed here")

    def _index(self, name: str) -> Int64[np.ndarray, "episodes"]:
        found = self._dataset(name)
        if found.ndim != 1 or found.dtype.kind not in "iu":
            raise self._bad(name, f"must be one axis of integers; is {_kind(found)}")
        if not 1 <= found.shape[0] <= MAX_EPISODES:
            raise self._bad(name, f"has {found.shape[0]} episodes; 1 to {MAX_EPISODES} are read")
        values = Column(found, self.name, name, self._check).read(0, found.shape[0])
        bad = np.flatnonzero((values < 0) | (values > MAX_ROWS))
        if bad.size:
            raise self._bad(
                name, f"of episode {bad[0]} is {values[bad[0]]}; must be 0 to {MAX_ROWS}"
            )
        return values.astype(np.int64)

    def _check_episodes(self) -> None:
        if self.lengths.shape != self.offsets.shape:
            raise self._bad(
                "ep_offset",
                f"has {self.offsets.size} episodes, but ep_len has {self.lengths.size}",
            )
        filled = np.flatnonzero(self.lengths)
        order = filled[np.argsort(self.offsets[filled], kind="stable")]
        ends = (self.offsets + self.lengths)[order]
        overlap = np.flatnonzero(self.offsets[order][1:] < ends[:-1])
        if overlap.size:
            first, second = order[overlap[0]], order[overlap[0] + 1]
            raise self._bad("ep_offset", f"makes episodes {first} and {second} overlap")

    def _bad(self, column: str, description: str) -> FailedPrecondition:
        return FailedPrecondition(f"dataset {self.name!r}, column {column!r} {description}")


def _kind(found: h5py.Dataset) -> str:
    return f"{found.dtype} {found.shape}"

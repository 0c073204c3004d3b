"""One column of a dataset, read in slices so that each stored chunk is decompressed once."""

from collections.abc import Iterator

import h5py
import numpy as np
from jaxtyping import Int64, Shaped

from acpc_server.errors import FailedPrecondition

_READ_BYTES = 2**25


class Column:
    """One column: an array of ``shape`` (rows, ...), read in slices."""

    def __init__(self, dataset: h5py.Dataset, file: str, name: str) -> None:
        self._dataset = dataset
        self._file = file
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

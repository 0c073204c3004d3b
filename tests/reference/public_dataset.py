"""Writes HDF5 files in the layout of the public datasets, straight from their documented facts.

One dataset per column, one row per chunk, ``libver="v114"``, no attributes, ``ep_len`` int32 and
``ep_offset`` int64. Nothing of the server is imported, so tests may compare against what is here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numpy as np

EPISODES = (1, 24, 7, 31, 40, 1, 55, 18)


@dataclass(frozen=True)
class PublicColumns:
    """The columns of one file, and where its episodes lie."""

    columns: dict[str, np.ndarray]
    lengths: np.ndarray
    offsets: np.ndarray


def public_columns(
    lengths: Sequence[int] = EPISODES,
    *,
    state: str = "pos_agent",
    state_dim: int = 2,
    action_dim: int = 2,
    side: int = 12,
    seed: int = 5,
) -> PublicColumns:
    """Random episodes whose last action row is NaN, as collected files have it."""
    generator = np.random.default_rng(seed)
    rows = int(sum(lengths))
    ends = np.cumsum(lengths)
    action = generator.uniform(-1.0, 1.0, (rows, action_dim)).astype(np.float32)
    action[ends - 1] = np.nan
    scale = np.linspace(0.5, 3.0, state_dim)
    walk = generator.normal(0.0, 1.0, (rows, state_dim)) * scale + np.arange(state_dim)
    return PublicColumns(
        columns={
            "pixels": generator.integers(0, 256, (rows, side, side, 3), dtype=np.uint8),
            "action": action,
            state: walk.astype(np.float32),
        },
        lengths=np.asarray(lengths, np.int32),
        offsets=(ends - np.asarray(lengths)).astype(np.int64),
    )


def write_public_dataset(
    path: Path,
    content: PublicColumns,
    *,
    compress: bool = False,
    rows_per_chunk: int = 1,
    override: Mapping[str, np.ndarray | None] | None = None,
) -> Path:
    """Writes ``content`` to ``path``.

    Args:
        path: File to create.
        content: What to write.
        compress: Whether chunks go through hdf5plugin's Blosc filter.
        rows_per_chunk: 1 in the public files.
        override: Columns (or ``ep_len``, ``ep_offset``) to replace, or to leave out when None.

    Returns:
        ``path``.
    """
    arrays: dict[str, np.ndarray | None] = {
        **content.columns,
        "ep_len": content.lengths,
        "ep_offset": content.offsets,
        **(override or {}),
    }
    filters: dict[str, Any] = dict(hdf5plugin.Blosc(cname="lz4", clevel=5)) if compress else {}
    with h5py.File(path, "w", libver="v114") as file:
        for name, array in arrays.items():
            if array is None:
                continue
            index = name in ("ep_len", "ep_offset")
            file.create_dataset(
                name,
                data=array,
                maxshape=(None, *array.shape[1:]),
                chunks=True if index else (rows_per_chunk, *array.shape[1:]),
                **({} if index else filters),
            )
    return path

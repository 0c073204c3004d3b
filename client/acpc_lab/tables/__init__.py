"""Scores as files: JSON to read, npz and Parquet to read again exactly.

    save_score(score, "score.npz")
    assert load_score("score.npz") == score

Parquet has one row per anchor (and side: the checkpoint, the reference) and needs pyarrow, from
``pip install 'acpc[report]'``; the summaries, the verdict and the receipt travel as JSON under the
key ``acpc_score`` of its metadata.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from acpc_client import Score, write_whole
from acpc_client.errors import ArgumentError

from acpc_lab.tables import npz, parquet
from acpc_lab.tables.anchor_files import HISTORY, load_anchors
from acpc_lab.tables.plain import decode

__all__ = ["FORMATS", "load_score", "save_score"]

FORMATS = (".json", ".npz", ".parquet")


def save_score(score: Score, path: str | Path) -> None:
    """Writes a score in the format that the suffix names, whole or not at all.

    Raises:
        ArgumentError: Another suffix.
        FailedPrecondition: Parquet, and pyarrow is not installed.
        OSError: The file cannot be written.
    """
    writers: dict[str, Callable[[Score], bytes]] = {
        ".json": lambda item: (item.to_json(indent=2) + "\n").encode(),
        ".npz": npz.write,
        ".parquet": parquet.write,
    }
    target = Path(path)
    if target.suffix not in writers:
        raise ArgumentError("path", f"found {target.name}, wanted a name ending in {_list()}")
    write_whole(target, writers[target.suffix](score))


def load_score(path: str | Path) -> Score:
    """Reads what ``save_score`` wrote as npz or Parquet; NaN and every bit are as they were.

    Raises:
        ArgumentError: Another format, no such file, or no score in it.
    """
    source = Path(path)
    readers = {".npz": npz.read, ".parquet": parquet.read}
    if source.suffix not in readers:
        raise ArgumentError("path", f"found {source.name}, wanted .npz or .parquet")
    try:
        content = source.read_bytes()
    except OSError as error:
        raise ArgumentError("path", f"cannot read {source}: {error.strerror}") from error
    return readers[source.suffix](content)


def _list() -> str:
    return f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]}"

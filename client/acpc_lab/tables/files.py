"""Reads and writes archives of plain arrays."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from acpc_client.errors import ArgumentError
from numpy.typing import NDArray


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an NPZ file; objects are never unpickled.

    Raises:
        ArgumentError: It is not such a file.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise ArgumentError(str(path), f"is not an NPZ file of plain arrays: {error}") from error


def to_npz(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """The arrays as a compressed NPZ file, in the order of their names."""
    content = io.BytesIO()
    np.savez_compressed(content, **dict(sorted(arrays.items())))  # type: ignore[arg-type]
    return content.getvalue()


def to_json(document: Any) -> bytes:  # noqa: ANN401 - any JSON value
    """Strict JSON of two spaces' indent, with a newline at its end."""
    return (json.dumps(document, indent=2, allow_nan=False) + "\n").encode()


def sha256(data: bytes) -> str:
    """SHA-256 in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()

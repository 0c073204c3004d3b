"""Content of files: archives of plain arrays, JSON, and digests."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


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

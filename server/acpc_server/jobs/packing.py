"""Arrays in the job record: JSON that restores them bit for bit."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np


def pack(array: np.ndarray) -> dict[str, Any]:
    """An array as dtype, shape and base64 bytes."""
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {"dtype": array.dtype.str, "shape": list(array.shape), "data": data}


def unpack(value: Mapping[str, Any]) -> np.ndarray:
    """Inverse of :func:`pack`; the array is read-only."""
    flat = np.frombuffer(base64.b64decode(value["data"]), dtype=value["dtype"])
    return flat.reshape(value["shape"])

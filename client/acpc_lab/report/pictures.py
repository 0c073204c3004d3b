"""Frames as data URIs, so that the page needs no other file."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acpc_lab.extras import load

# Above this side, a noisy frame as PNG weighs more than 40 kB.
_LOSSLESS_UP_TO = 96
_QUALITY = 90


def data_uri(history: NDArray[np.uint8]) -> str:
    """The last frame of a history, uint8 (history, height, width, 3): PNG, or WebP when large."""
    frame = np.ascontiguousarray(history[-1])
    small = max(frame.shape[:2]) <= _LOSSLESS_UP_TO
    buffer = io.BytesIO()
    image: Any = load("PIL.Image", "report").fromarray(frame)
    if small:
        image.save(buffer, format="PNG", optimize=True)
    else:
        image.save(buffer, format="WEBP", quality=_QUALITY, method=4)
    kind = "png" if small else "webp"
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"

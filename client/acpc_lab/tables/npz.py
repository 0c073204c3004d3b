"""A score as npz: one entry per array, named by its path, and one, ``score``, with the rest."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import numpy as np
from acpc_client import Score
from acpc_client.errors import ArgumentError

from acpc_lab.tables.plain import decode, encode

# The entry with everything that is no array, as JSON.
DOCUMENT = "score"


def write(score: Score) -> bytes:
    """The bytes of the file."""
    document, arrays = encode(score)
    entries: dict[str, Any] = {DOCUMENT: np.array(json.dumps(document, allow_nan=False)), **arrays}
    content = io.BytesIO()
    np.savez(content, **entries)
    return content.getvalue()


def read(content: bytes) -> Score:
    """The score.

    Raises:
        ArgumentError: The bytes are no such file.
    """
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as entries:
            arrays = {name: entries[name] for name in entries.files}
        document = json.loads(str(arrays.pop(DOCUMENT)))
    except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise ArgumentError("path", f"the file is no score in npz: {error}") from error
    score: Score = decode(Score, document, arrays)
    return score

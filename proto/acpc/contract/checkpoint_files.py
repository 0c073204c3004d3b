"""Tells by its name which file of a folder holds a checkpoint's weights."""

from __future__ import annotations

WEIGHTS_SUFFIXES = (".pt", ".safetensors", ".ckpt")
OBJECT_SUFFIX = "_object.ckpt"
"""Ends the name of a pickled model, which is imported and never loaded."""


def is_weights_name(name: str) -> bool:
    """Whether a server lists and loads a file of this name, beside a ``config.json``."""
    return name.endswith(WEIGHTS_SUFFIXES) and not name.endswith(OBJECT_SUFFIX)

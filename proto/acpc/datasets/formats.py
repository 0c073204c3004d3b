"""Tells the format of a dataset by its name, without opening anything."""

from __future__ import annotations

from pathlib import Path

FORMATS = ("hdf5", "lance")
HDF5_SUFFIXES = (".h5", ".hdf5")
LANCE_SUFFIX = ".lance"


def recognise(path: Path) -> str:
    """One of ``FORMATS``; empty: neither by its name, or nothing that may be looked at.

    A folder that holds Lance tables is ``lance`` as each of them is.
    """
    if path.name.endswith(HDF5_SUFFIXES):
        return "hdf5"
    try:
        tables = path.name.endswith(LANCE_SUFFIX) or any(path.glob(f"*{LANCE_SUFFIX}"))
    except OSError:
        return ""
    return "lance" if tables else ""


def unread(name: str) -> str:
    """Words that a dataset is not read, and what makes HDF5 of it."""
    return (
        f"{name!r} is not HDF5 or Lance; `swm convert {name} {name}.h5 -f hdf5` makes it (zstd -d "
        "first, if compressed): docs/anchors.md, 'Other formats'"
    )

"""Tells the format of a dataset by its name and what lies in it, without opening anything."""

from __future__ import annotations

from pathlib import Path

FORMATS = ("hdf5", "lance", "folder", "video", "lerobot")
HDF5_SUFFIXES = (".h5", ".hdf5")
LANCE_SUFFIX = ".lance"
COMPRESSED = {
    ".h5.zst": "zstd -d {}",
    ".hdf5.zst": "zstd -d {}",
    ".tar.zst": "zstd -d {0}, then tar -xf on what it writes",
}


def recognise(path: Path) -> str:
    """One of ``FORMATS``; empty: none of them, or nothing that may be looked at.

    A folder that holds Lance tables is ``lance`` as each of them is.
    """
    try:
        tables = path.is_dir() and any(path.glob(f"*{LANCE_SUFFIX}"))
    except OSError:
        return ""
    return "lance" if tables else dataset_format(path)


def dataset_format(path: Path) -> str:
    """The format of what is one dataset; empty: it is none.

    ``lance``, ``folder`` and ``video`` are the layouts of stable-worldmodel, ``lerobot`` that of
    LeRobot.
    """
    try:
        if path.is_file():
            return "hdf5" if path.suffix in HDF5_SUFFIXES else ""
        if path.suffix == LANCE_SUFFIX:
            return "lance"
        if (path / "meta" / "info.json").is_file():
            return "lerobot"
        if (path / "ep_len.npz").is_file():
            return "video" if any(path.glob("*/*.mp4")) else "folder"
    except OSError:
        return ""
    return ""


def compressed(name: str) -> str:
    """Words the command that unpacks a published dataset; empty where nothing is packed."""
    command = next((how for end, how in COMPRESSED.items() if name.endswith(end)), "")
    return command and f"{name} is compressed; run: {command.format(name)}"

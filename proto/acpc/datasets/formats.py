"""Tells the format of a dataset by its name and layout, without opening anything.

Server and lab read HDF5, the lab also Lance. Other formats are recognised so that an error can name
what makes HDF5 of them.
"""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from typing import NamedTuple

FORMATS = ("hdf5", "lance")
HDF5_SUFFIXES = (".h5", ".hdf5")
LANCE_SUFFIX = ".lance"
COMPRESSED = {
    ".h5.zst": "zstd -d {}",
    ".hdf5.zst": "zstd -d {}",
    ".tar.zst": "zstd -d {0}, then tar -xf on what it writes",
}
_SWM = "run `swm convert {0} {0}.h5 -f hdf5` of stable-worldmodel in $STABLEWM_HOME/datasets"
_HUB = (
    "call stable_worldmodel.data.convert('lerobot://OWNER/NAME', '/PATH/NAME.h5', "
    "dest_format='hdf5'), with Python 3.12 and stable-worldmodel[lerobot]"
)
_WRITE = (
    "write a dataset per column, the rows of all episodes one after another, beside ep_len and "
    "ep_offset (docs/anchors.md, 'Other formats')"
)


class Other(NamedTuple):
    """A format that is not read; ``{0}`` stands for the dataset.

    Attributes:
        words: What it is.
        convert: What makes HDF5 of it.
    """

    words: str
    convert: str


OTHERS = {
    "folder": Other("a folder of images of stable-worldmodel (ep_len.npz)", _SWM),
    "video": Other("a folder of videos of stable-worldmodel (ep_len.npz, *.mp4)", _SWM),
    "lerobot": Other("a LeRobot dataset (meta/info.json)", _HUB),
    "dino-wm": Other("a dataset of DINO-WM (states.pth)", _WRITE),
    "zarr": Other("a zarr store, as of Diffusion Policy (meta/episode_ends)", _WRITE),
    "robomimic": Other("an HDF5 file of robomimic or LIBERO (data/demo_*)", _WRITE),
    "npz": Other("NPZ without the arrays of anchors", _WRITE),
    "videos": Other("video without an index of episodes", _WRITE),
    "frames": Other("images without an index of episodes", _WRITE),
}
_NAMES = {"hdf5": HDF5_SUFFIXES, "lance": (LANCE_SUFFIX,), "zarr": (".zarr", ".zarr.zip")}
# Of what lies in a folder of a format, one.
_MARKS = {
    "lerobot": ("meta/info.json",),
    "folder": ("ep_len.npz",),
    "dino-wm": ("states.pth", "train/states.pth"),
    "zarr": ("meta/episode_ends",),
}
_ENDS = {
    "npz": {".npz"},
    "videos": {".mp4", ".avi", ".mkv", ".mov", ".webm"},
    "frames": {".png", ".jpg", ".jpeg"},
}
_LOOKED_AT = 1000


def recognise(path: Path) -> str:
    """One of ``FORMATS`` or ``OTHERS``; empty: neither, or nothing that may be looked at.

    A folder that holds Lance tables is ``lance`` as each of them is. Of HDF5 files of another
    layout, as robomimic's, the reader tells.
    """
    try:
        tables = path.is_dir() and any(path.glob(f"*{LANCE_SUFFIX}"))
        return "lance" if tables else dataset_format(path) or _by_ends(path)
    except OSError:
        return ""


def dataset_format(path: Path) -> str:
    """The format of what is surely one dataset, as a listing shows it; empty: it is none."""
    named = next((f for f, ends in _NAMES.items() if path.name.endswith(ends)), "")
    if named:
        return named if named != "hdf5" or path.is_file() else ""
    try:
        there = (f for f, marks in _MARKS.items() if any((path / m).exists() for m in marks))
        found = next(there, "")
        filmed = found == "folder" and any(path.glob("*/*.mp4"))
    except OSError:
        return ""
    return "video" if filmed else found


def _by_ends(path: Path) -> str:
    """The format by how names end: of a file, or of what lies in a folder or its first folder."""
    found = [path]
    for _ in range(2):
        if found and found[0].is_dir():
            with os.scandir(found[0]) as entries:
                found = [Path(entry.path) for entry in islice(entries, _LOOKED_AT)]
            found.sort(key=lambda one: (one.is_file(), one.name))
    ends = {one.suffix.lower() for one in found}
    return next((format for format, known in _ENDS.items() if ends & known), "")


def unread(name: str, format: str) -> str:
    """Words that a dataset of one of ``OTHERS`` is not read, and what makes HDF5 of it."""
    other = OTHERS[format]
    return f"{name!r} is {other.words}; to make HDF5 of it, {other.convert.format(name)}"


def compressed(name: str) -> str:
    """Words the command that unpacks a published dataset; empty where nothing is packed."""
    command = next((how for end, how in COMPRESSED.items() if name.endswith(end)), "")
    return command and f"{name} is compressed; run: {command.format(name)}"

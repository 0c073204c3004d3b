"""Tells the format of a dataset by its name and layout, without opening anything.

Server and lab read HDF5, the lab also Lance. Those that have a public converter are recognised so
that an error can name it.
"""

from __future__ import annotations

from pathlib import Path

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
OTHERS = {
    "folder": ("a folder of images of stable-worldmodel (ep_len.npz)", _SWM),
    "video": ("a folder of videos of stable-worldmodel (ep_len.npz, *.mp4)", _SWM),
    "lerobot": ("a LeRobot dataset (meta/info.json)", _HUB),
}
"""Formats that are not read: what they are, and what makes HDF5 of the dataset ``{0}``."""


def recognise(path: Path) -> str:
    """One of ``FORMATS`` or ``OTHERS``; empty: neither, or nothing that may be looked at.

    A folder that holds Lance tables is ``lance`` as each of them is. Of HDF5 files of another
    layout the reader tells.
    """
    try:
        tables = path.is_dir() and any(path.glob(f"*{LANCE_SUFFIX}"))
    except OSError:
        return ""
    return "lance" if tables else dataset_format(path)


def dataset_format(path: Path) -> str:
    """The format of what is surely one dataset, as a listing shows it; empty: it is none."""
    if path.name.endswith(LANCE_SUFFIX):
        return "lance"
    try:
        if path.name.endswith(HDF5_SUFFIXES):
            return "hdf5" if path.is_file() else ""
        if (path / "meta/info.json").exists():
            return "lerobot"
        if not (path / "ep_len.npz").exists():
            return ""
        return "video" if any(path.glob("*/*.mp4")) else "folder"
    except OSError:
        return ""


def unread(name: str, format: str) -> str:
    """Words that a dataset of one of ``OTHERS`` is not read, and what makes HDF5 of it."""
    words, convert = OTHERS[format]
    return f"{name!r} is {words}; to make HDF5 of it, {convert.format(name)}"


def compressed(name: str) -> str:
    """Words the command that unpacks a published dataset; empty where nothing is packed."""
    command = next((how for end, how in COMPRESSED.items() if name.endswith(end)), "")
    return command and f"{name} is compressed; run: {command.format(name)}"

"""One set of episodes as the public library's own writers write it, in each of its formats.

As a program it writes them below a folder, with Lance tables that are odd, and reads every Lance
table back: Lance is not to be loaded where tests start programs, for it does not bear forks.
"""

import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from acpc.contract import AcpcError
from acpc_client import AnchorArrays, DatasetAnchors, digest_of
from acpc_lab.datasets import drawn_from
from PIL import Image

LENGTHS = (1, 24, 7, 31, 40, 1, 55, 18)
SIDE = 32
# The public library's classes: writer, and what the dataset is called. A folder is only converted.
WRITERS = {
    "hdf5": ("HDF5Writer", "rooms.h5"),
    "lance": ("LanceWriter", "rooms.lance"),
    "folder": ("FolderWriter", "rooms"),
}
GREY = 130
"""A grey that JPEG keeps as it is."""

Episode = dict[str, list[np.ndarray]]


def episodes(lengths: Sequence[int] = LENGTHS, *, grey: bool = False) -> list[Episode]:
    """Smooth frames, of which codecs lose little, or grey ones; an episode's last action is NaN."""
    random = np.random.default_rng(5)
    line = np.linspace(0.0, 1.0, SIDE)
    made = []
    for length in lengths:
        angle = random.uniform(0, 6) + np.cumsum(random.normal(0.4, 0.1, length))
        place = 0.5 + 0.4 * np.stack([np.sin(angle), np.cos(angle)], axis=1)
        near = np.exp(-16 * (line - place[..., None]) ** 2)  # (length, 2, side)
        bump = near[:, 0, :, None, None] * near[:, 1, None, :, None]
        frames = (200 * bump * np.array([1.0, 0.6, 0.3]) + 20).astype(np.uint8)
        if grey:
            frames[:] = GREY
        action = random.uniform(-1, 1, (length, 2)).astype(np.float32)
        action[-1] = np.nan
        made.append(
            {"pixels": [*frames], "action": [*action], "pos_agent": [*place.astype(np.float32)]}
        )
    return made


def drawn(path: Path, format: str = "") -> tuple[str, AnchorArrays]:
    """Digest and arrays of the anchors that every test draws, frames in memory."""
    source = DatasetAnchors(path.name, "tworoom", count=20, frameskip=3)
    with drawn_from(path, source, format=format, history=2, horizon=3) as anchors:
        return digest_of(anchors), anchors.part(0, 20)


def write_public(folder: Path, format: str, content: Sequence[Episode]) -> Path:
    """Writes episodes with the library's own writer; returns where they are."""
    from public_library import public_module

    writer, name = WRITERS[format]
    with getattr(public_module(f"data.formats.{format}"), writer)(folder / name) as opened:
        opened.write_episodes(content)
    return folder / name


def _columns(**changed: object) -> dict[str, Any]:
    """The columns of a Lance table with two episodes, without frames."""
    plain = {
        "episode_idx": [3] * 40 + [7] * 40,
        "action": [[0.5, 1.0 * i] for i in range(80)],
        "pos_agent": [[1.0 * i, 0.0] for i in range(80)],
    }
    return {name: value for name, value in (plain | changed).items() if value is not None}


def write_odd_tables(folder: Path) -> None:
    """Lance tables that are none of the library's, or damaged, and one like videos beside one."""
    import lance
    import pyarrow as pa

    unequal = [[1.0]] * 79 + [[1.0, 2.0]]
    image = io.BytesIO()
    Image.new("RGB", (SIDE, SIDE)).save(image, "JPEG")
    pixels = [image.getvalue()] * 80
    tables = {
        "other": {"id": [1, 2], "text": ["a", "b"]},
        "decreasing": _columns(episode_idx=[1] * 40 + [0] * 40),
        "no_frames": _columns(),
        "no_image": _columns(pixels=[b"no image"] * 80),
        "cut_image": _columns(pixels=[pixels[0], *([pixels[0][:300]] * 79)]),
        "no_bytes": _columns(pixels=unequal),
        "no_state": _columns(pos_agent=None, pixels=pixels),
        "unequal": _columns(pos_agent=unequal, pixels=pixels),
        "missing": _columns(pos_agent=[None, *([[1.0, 2.0]] * 79)], pixels=pixels),
        "empty": None,
    }
    for name, columns in tables.items():
        table = pa.table(_columns() if columns is None else columns)
        lance.write_dataset(
            table.slice(0, 0 if columns is None else None), folder / f"{name}.lance"
        )
    (folder / "broken.lance").mkdir()
    (folder / "no_frames_videos.lance").mkdir()


def main(folder: Path) -> None:
    from public_library import public_module

    (folder / "grey").mkdir()
    for format in WRITERS:
        write_public(folder, format, episodes())
        write_public(folder / "grey", format, episodes(grey=True))
    # As `swm convert` does.
    public_module("data.utils").convert(
        folder / "rooms", folder / "converted.h5", dest_format="hdf5", progress=False
    )
    write_odd_tables(folder)
    found: dict[str, Any] = {}
    below = ("grey/rooms.lance", ".")
    tables = [*folder.glob("*.lance"), *map(folder.joinpath, below)]
    for table in tables:
        name = table.relative_to(folder).as_posix()
        try:
            found[name], anchors = drawn(table, "lance")
        except AcpcError as error:
            found[name] = f"{error.code} {error.message}"
        else:
            arrays = {one: getattr(anchors, one) for one in ("frames", *_SMALL)}
            np.savez(folder / f"{name.replace('/', '_')}.npz", **arrays)
    (folder / "lance.json").write_text(json.dumps(found))


_SMALL = ("action_blocks", "endpoint_states", "labels", "anchor_ids", "trajectory_ids")

if __name__ == "__main__":
    main(Path(sys.argv[1]))

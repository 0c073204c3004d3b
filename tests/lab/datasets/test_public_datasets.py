"""What the public library's own writers write is read alike, whichever format they write."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import processes
import public_formats
import pytest
from acpc.contract import SMALL_ARRAYS, AnchorSource
from acpc_lab.datasets import recognise
from acpc_server.data import DatasetStore
from PIL import Image
from public_formats import LENGTHS, WRITERS, drawn, episodes

pytestmark = pytest.mark.process


class Written(NamedTuple):
    """Where everything was written, and what reading the Lance tables gave."""

    root: Path
    lance: Mapping[str, str]

    def read(self, format: str, folder: str = "") -> tuple[str, Mapping[str, np.ndarray]]:
        """Digest and arrays of the anchors drawn from one format."""
        name = WRITERS[format][1]
        if format == "lance":
            arrays = np.load(self.root / f"{folder.replace('/', '_')}{name}.npz")
            return self.lance[folder + name], arrays
        digest, anchors = drawn(self.root / folder / name)
        return digest, {one: getattr(anchors, one) for one in ("frames", *SMALL_ARRAYS)}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    root = tmp_path_factory.mktemp("public")
    processes.run([sys.executable, public_formats.__file__, str(root)])
    return Written(root, json.loads((root / "lance.json").read_text()))


def test_a_server_draws_the_same_anchors_from_its_own_file(written: Written) -> None:
    digest, _ = written.read("hdf5")
    source = AnchorSource("rooms.h5", "tworoom", count=20, frameskip=3)
    with DatasetStore(written.root).drawn(source, history=2, horizon=3) as anchors:
        assert anchors.digest == digest


@pytest.mark.parametrize("format", WRITERS)
def test_the_format_is_told_by_what_lies_there(written: Written, format: str) -> None:
    assert recognise(written.root / WRITERS[format][1]) == format


@pytest.mark.parametrize("format", ["lance", "folder", "video"])
def test_what_its_codec_keeps_has_one_digest(written: Written, format: str) -> None:
    """A grey that neither JPEG nor H.264 changes: then all of the content is equal."""
    digest, _ = written.read("hdf5", "grey/")
    assert written.read(format, "grey/")[0] == digest


@pytest.mark.parametrize(
    ("format", "mean", "most"), [("lance", 2, 20), ("folder", 4, 40), ("video", 6, 60)]
)
def test_all_but_the_frames_is_equal_and_those_are_as_near_as_the_codec_keeps_them(
    written: Written, format: str, mean: float, most: float
) -> None:
    """Of 255; and each frame is nearer to its own than to its neighbours, so none is off by one."""
    _, exact = written.read("hdf5")
    _, found = written.read(format)
    for name in SMALL_ARRAYS:
        np.testing.assert_array_equal(found[name], exact[name])
    apart = np.abs(found["frames"].astype(int) - exact["frames"])
    assert apart.mean() < mean
    assert apart.max() < most
    every = np.concatenate([np.stack(one["pixels"]) for one in episodes()]).astype(int)
    for frame, own in zip(_flat(found), _flat(exact), strict=True):
        nearest = every[np.abs(every - frame).mean(axis=(1, 2, 3)).argmin()]
        assert np.abs(nearest - own).mean() < 2


def _flat(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    return arrays["frames"].reshape(-1, *arrays["frames"].shape[2:]).astype(int)


def test_images_are_decoded_as_pillow_does(written: Written) -> None:
    _, found = written.read("folder")
    _, exact = written.read("hdf5")
    every = np.concatenate([np.stack(one["pixels"]) for one in episodes()])
    ends = np.cumsum(LENGTHS)
    for frame, own in zip(_flat(found)[:10], _flat(exact)[:10], strict=True):
        row = int(np.flatnonzero((every == own).all(axis=(1, 2, 3)))[0])
        episode = int(np.searchsorted(ends, row, side="right"))
        step = row - (ends[episode] - LENGTHS[episode])
        with Image.open(written.root / f"rooms/pixels/ep_{episode}_step_{step}.jpeg") as image:
            np.testing.assert_array_equal(frame, np.asarray(image))


def test_videos_beside_a_lance_table_are_the_videos_of_a_folder(written: Written) -> None:
    """The layout that newer releases of the library write."""
    assert written.lance["films"] == written.read("video")[0]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("other", "without the column 'episode_idx', so not one of stable-worldmodel's"),
        ("decreasing", "column 'episode_idx' decreases: episodes must lie one after another"),
        ("no_frames", "column 'pixels' does not exist; there are ['action', 'pos_agent']"),
        ("no_image", "column 'pixels' row 0: is no whole JPEG or PNG image"),
        ("cut_image", "is no whole JPEG or PNG image"),
        ("no_bytes", "column 'pixels' must hold JPEG images; is list"),
        ("no_state", "column 'pos_agent' does not exist; there are ['action', 'pixels']"),
        ("unequal", "column 'pos_agent' cannot be read: has rows of 1 numbers and of 2"),
        ("missing", "column 'pos_agent' cannot be read: has 1 rows without a value"),
        ("empty", "has 0 rows"),
        ("broken", "is no readable Lance table"),
    ],
)
def test_an_odd_lance_table_says_what_is_wrong(written: Written, table: str, message: str) -> None:
    found = written.lance[f"{table}.lance"]
    assert found.startswith(f"FAILED_PRECONDITION dataset '{table}.lance'")
    assert message in found


def test_a_table_of_videos_names_the_one_that_it_belongs_to(written: Written) -> None:
    found = written.lance["films/filmed_videos.lance"]
    assert "'filmed_videos.lance' is a part of the dataset filmed.lance; name that" in found


def test_a_folder_of_several_tables_must_be_named_closer(written: Written) -> None:
    assert "must name one Lance table; this folder holds" in written.lance["."]

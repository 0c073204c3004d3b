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
from acpc.contract import SMALL_ARRAYS, AnchorSource, digest_of
from acpc.datasets import FORMATS, recognise
from acpc_server.data import DatasetStore
from public_formats import WRITERS, drawn, episodes

pytestmark = pytest.mark.process


class Written(NamedTuple):
    """Where everything was written, and what reading the Lance tables gave."""

    root: Path
    lance: Mapping[str, str]

    def read(self, format: str, folder: str = "") -> tuple[str, Mapping[str, np.ndarray]]:
        """Digest and arrays of the anchors drawn from one format."""
        name = folder + WRITERS[format][1]
        digest = self.lance[name] if format == "lance" else drawn(self.root / name)[0]
        return digest, self.arrays(name)

    def arrays(self, name: str) -> Mapping[str, np.ndarray]:
        """Arrays of the anchors drawn from one dataset."""
        if name.endswith(".lance"):
            return np.load(self.root / f"{name.replace('/', '_')}.npz")
        _, anchors = drawn(self.root / name)
        return {one: getattr(anchors, one) for one in ("frames", *SMALL_ARRAYS)}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    root = tmp_path_factory.mktemp("public")
    processes.run([sys.executable, public_formats.__file__, str(root)])
    return Written(root, json.loads((root / "lance.json").read_text()))


def test_a_server_draws_the_same_anchors_from_its_own_file(written: Written) -> None:
    digest, _ = written.read("hdf5")
    source = AnchorSource("rooms.h5", "tworoom", count=20, frameskip=3)
    with DatasetStore(written.root).drawn(source, history=2, horizon=3) as drawn:
        assert digest_of(drawn.anchors) == digest


@pytest.mark.parametrize("format", WRITERS)
def test_the_format_is_told_by_what_lies_there(written: Written, format: str) -> None:
    known = format if format in FORMATS else ""
    assert recognise(written.root / WRITERS[format][1]) == known


def test_what_its_codec_keeps_has_one_digest(written: Written) -> None:
    """A grey that JPEG does not change: then all of the content is equal."""
    assert written.read("lance", "grey/")[0] == written.read("hdf5", "grey/")[0]


@pytest.mark.parametrize(
    ("name", "mean", "most"), [("rooms.lance", 2, 20), ("converted.h5", 4, 40)]
)
def test_all_but_the_frames_is_equal_and_those_are_as_near_as_the_codec_keeps_them(
    written: Written, name: str, mean: float, most: float
) -> None:
    """Of 255; and each frame is nearer to its own than to its neighbours, so none is off by one.

    So of a Lance table, and of what the library makes of a folder that is not read here.
    """
    _, exact = written.read("hdf5")
    found = written.arrays(name)
    for small in SMALL_ARRAYS:
        np.testing.assert_array_equal(found[small], exact[small])
    apart = np.abs(found["frames"].astype(int) - exact["frames"])
    assert apart.mean() < mean
    assert apart.max() < most
    every = np.concatenate([np.stack(one["pixels"]) for one in episodes()]).astype(int)
    for frame, own in zip(_flat(found), _flat(exact), strict=True):
        nearest = every[np.abs(every - frame).mean(axis=(1, 2, 3)).argmin()]
        assert np.abs(nearest - own).mean() < 2


def _flat(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    return arrays["frames"].reshape(-1, *arrays["frames"].shape[2:]).astype(int)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("other", "without the column 'episode_idx', so not one of stable-worldmodel's"),
        ("decreasing", "column 'episode_idx' decreases: episodes must lie one after another"),
        (
            "no_frames",
            "column 'pixels' does not exist; there are ['action', 'pos_agent']; videos in "
            "no_frames_videos.lance are not read: stable-worldmodel's `swm convert no_frames",
        ),
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
    found = written.lance["no_frames_videos.lance"]
    assert "'no_frames_videos.lance' is a part of the dataset no_frames.lance; name that" in found


def test_a_folder_of_several_tables_must_be_named_closer(written: Written) -> None:
    assert "must name one Lance table; this folder holds" in written.lance["."]

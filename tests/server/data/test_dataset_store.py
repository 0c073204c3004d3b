"""The store joins datasets and tasks below one root.

A file of anchors is opened for every read, and must stay what it was.
"""

import os
from pathlib import Path

import numpy as np
import pytest
from acpc.contract import SMALL_ARRAYS, AnchorSource
from acpc.datasets import preset_names
from acpc_server.data import AnchorBatch, DatasetFit, DatasetStore
from acpc_server.data.dataset_anchors import FileAnchors
from acpc_server.errors import FailedPrecondition, InvalidArgument, NotFound, UnknownName
from public_dataset import EPISODES, public_columns, write_public_dataset

TASK = "name: t\nstate: pos_agent\nframeskip: 2\nlabels: [{rule: coordinates, of: [0]}]\n"


@pytest.fixture
def store(tmp_path: Path) -> DatasetStore:
    write_public_dataset(tmp_path / "a.h5", public_columns())
    (tmp_path / "t.yaml").write_text(TASK)
    return DatasetStore(tmp_path)


def test_fit_counts_windows_and_action_width(store: DatasetStore) -> None:
    def windows(span: int) -> tuple[int, int]:
        starts = [max(0, length - span + 1) for length in EPISODES]
        return sum(starts), sum(count > 0 for count in starts)

    assert store.fit("a.h5", "t.yaml", steps=4) == DatasetFit(*windows(8), 2, 2)
    assert store.fit("a.h5", "tworoom", steps=4) == DatasetFit(*windows(20), 5, 2)
    assert store.fit("a.h5", "tworoom", steps=4, frameskip=3) == DatasetFit(*windows(12), 3, 2)
    with pytest.raises(InvalidArgument, match="frameskip: is 0"):
        store.fit("a.h5", "tworoom", steps=4, frameskip=0)


def test_fit_refuses_what_anchors_would_refuse(store: DatasetStore, tmp_path: Path) -> None:
    with pytest.raises(FailedPrecondition, match="'observation' does not exist"):
        store.fit("a.h5", "reacher", steps=4)
    (tmp_path / "wide.yaml").write_text(TASK.replace("[0]", "[2]"))
    with pytest.raises(FailedPrecondition, match="uses coordinate 2"):
        store.fit("a.h5", "wide.yaml", steps=4)
    with pytest.raises(NotFound, match=r"'b\.h5' does not exist"):
        store.fit("b.h5", "tworoom", steps=4)


def test_a_file_that_another_preset_reads_names_it(store: DatasetStore, tmp_path: Path) -> None:
    """Current stable-worldmodel collects the position as ``state``."""
    write_public_dataset(tmp_path / "current.h5", public_columns(state="state"))
    wanted = r"task 'tworoom' does not fit this file, but 'tworoom-current' would: dataset 'current"
    with pytest.raises(FailedPrecondition, match=wanted):
        store.fit("current.h5", "tworoom", steps=4)
    source = AnchorSource(dataset="current.h5", task="tworoom", count=9, seed=4)
    with pytest.raises(FailedPrecondition, match=wanted), store.drawn(source, history=2, horizon=2):
        pass
    (tmp_path / "near.yaml").write_text(TASK.replace("pos_agent", "pos_agnt"))
    with pytest.raises(FailedPrecondition, match="does not exist; did you mean 'pos_agent'"):
        store.fit("a.h5", "near.yaml", steps=4)


def test_a_file_that_no_preset_reads_names_none(store: DatasetStore, tmp_path: Path) -> None:
    write_public_dataset(tmp_path / "odd.h5", public_columns(state="somewhere"))
    with pytest.raises(FailedPrecondition, match=r"^dataset 'odd.h5', column 'pos_agent'"):
        store.fit("odd.h5", "tworoom", steps=4)


def test_datasets_and_tasks_are_listed_by_name_and_links_are_not(
    store: DatasetStore, tmp_path: Path
) -> None:
    (tmp_path / "inner").mkdir()
    for name in ("inner/b.hdf5", "inner/t.json", "inner/notes.txt"):
        (tmp_path / name).write_text("")
    (tmp_path / "link.h5").symlink_to(tmp_path / "a.h5")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "folder.h5").mkdir()
    assert [one.name for one in store.datasets()] == ["a.h5", "inner/b.hdf5"]
    assert store.datasets()[0].size_bytes == (tmp_path / "a.h5").stat().st_size
    tasks = store.tasks()
    assert [one.name for one in tasks] == [*preset_names(), "inner/t.json", "t.yaml"]
    rooms = next(one for one in tasks if one.name == "tworoom")
    assert (rooms.state, rooms.frameskip, rooms.history) == ("pos_agent", 5, 3)


def test_unknown_names_know_what_there_is(store: DatasetStore) -> None:
    with pytest.raises(UnknownName) as dataset:
        store.fit("b.h5", "tworoom", steps=4)
    assert "did you mean 'a.h5'? acpc datasets shows all" in dataset.value.with_names().message
    for task, near in (("towroom", "tworoom"), ("tt.yaml", "t.yaml")):
        with pytest.raises(UnknownName) as unknown:
            store.fit("a.h5", task, steps=4)
        told = unknown.value.with_names().message
        assert f"did you mean '{near}'? acpc tasks shows all" in told


def test_stamp_follows_the_files(store: DatasetStore, tmp_path: Path) -> None:
    first = store.stamp("a.h5", "t.yaml")
    assert store.stamp("a.h5", "t.yaml") == first
    assert store.stamp("a.h5", "tworoom") != first
    os.utime(tmp_path / "t.yaml", ns=(1, 1))
    second = store.stamp("a.h5", "t.yaml")
    write_public_dataset(tmp_path / "a.h5", public_columns(seed=6))
    os.utime(tmp_path / "a.h5", ns=(2, 2))
    assert len({first, second, store.stamp("a.h5", "t.yaml")}) == 3


def test_a_dataset_in_another_format_is_listed_as_what_it_is_and_says_what_to_do(
    store: DatasetStore, tmp_path: Path
) -> None:
    """Only names are looked at; what is in such a folder is none."""
    for name in ("rooms.lance/_versions", "so101/meta", "films/pixels", "inner/images", "none"):
        (tmp_path / name).mkdir(parents=True)
    for name in (
        "rooms.lance/b.h5",
        "so101/meta/info.json",
        "films/ep_len.npz",
        "films/pixels/ep_0.mp4",
        "inner/images/ep_len.npz",
        "inner/c.h5",
    ):
        (tmp_path / name).write_text("")
    (tmp_path / "link.lance").symlink_to(tmp_path / "rooms.lance")
    listed = {one.name: (one.format, one.size_bytes) for one in store.datasets()}
    size = (tmp_path / "a.h5").stat().st_size
    assert listed == {
        "a.h5": ("hdf5", size),
        "films": ("video", 0),
        "inner/c.h5": ("hdf5", 0),
        "inner/images": ("folder", 0),
        "rooms.lance": ("lance", 0),
        "so101": ("lerobot", 0),
    }
    wanted = r"is a Lance table.*`acpc anchors upload rooms.lance --task TASK` makes"
    with pytest.raises(FailedPrecondition, match=wanted) as it:
        store.fit("rooms.lance", "tworoom", steps=4)
    assert it.value.reason == "DATASET_FORMAT"
    with pytest.raises(FailedPrecondition, match="'none' is not a regular file"):
        store.fit("none", "tworoom", steps=4)


SOURCE = AnchorSource(dataset="a.h5", task="tworoom", count=12, frameskip=2)
WINDOW = {"history": 2, "horizon": 3}


@pytest.fixture
def anchors(store: DatasetStore) -> FileAnchors:
    return store.anchors(SOURCE, **WINDOW)


@pytest.fixture
def batch(store: DatasetStore) -> AnchorBatch:
    with store.drawn(SOURCE, **WINDOW) as drawn:
        return drawn.batch()


def test_they_are_the_anchors_read_at_once(anchors: FileAnchors, batch: AnchorBatch) -> None:
    for name in SMALL_ARRAYS:
        np.testing.assert_array_equal(getattr(anchors, name), getattr(batch, name))
    for start, stop in ((0, 5), (5, 12), (3, 4), (7, 7)):
        np.testing.assert_array_equal(anchors.read_frames(start, stop), batch.frames[start:stop])
    assert anchors.digest == batch.digest
    assert (anchors.count, anchors.history, anchors.horizon) == (12, 2, 3)
    assert anchors.frame_size == batch.frame_size


def test_known_digests_spare_the_reading_and_are_held_to(
    anchors: FileAnchors, tmp_path: Path
) -> None:
    store, reads = DatasetStore(tmp_path), []
    known = store.anchors(
        SOURCE, **WINDOW, frame_digests=anchors.frame_digests, check=lambda: reads.append(1)
    )
    assert reads == []
    assert known.digest == anchors.digest
    np.testing.assert_array_equal(known.read_frames(2, 9), anchors.read_frames(2, 9))
    other = store.anchors(SOURCE, **WINDOW, frame_digests=bytes(32 * 12))
    assert other.digest != anchors.digest
    with pytest.raises(FailedPrecondition, match="holds other frames"):
        other.read_frames(0, 1)


def test_reading_for_the_digest_can_be_ended(
    anchors: FileAnchors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acpc_server.data.anchors.CUT_BYTES", 1)
    reads = []

    def check() -> None:
        reads.append(1)
        if len(reads) == 5:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        DatasetStore(tmp_path).anchors(SOURCE, **WINDOW, check=check)


def test_a_copy_of_the_file_is_the_file(anchors: FileAnchors, tmp_path: Path) -> None:
    before = anchors.read_frames(0, 12)
    content = (tmp_path / "a.h5").read_bytes()
    (tmp_path / "a.h5").unlink()
    (tmp_path / "a.h5").write_bytes(content)
    np.testing.assert_array_equal(anchors.read_frames(0, 12), before)


def test_one_changed_pixel_is_seen_where_it_is(anchors: FileAnchors, tmp_path: Path) -> None:
    content = public_columns()
    seventh = int(anchors._rows[7, 4])
    content.columns["pixels"][seventh, 0, 0, 0] ^= 1
    write_public_dataset(tmp_path / "a.h5", content)
    touched = [bool((rows == seventh).any()) for rows in anchors._rows]
    for anchor, changed in enumerate(touched):
        if not changed:
            anchors.read_frames(anchor, anchor + 1)
            continue
        with pytest.raises(FailedPrecondition, match=r"'a\.h5' holds other frames") as caught:
            anchors.read_frames(anchor, anchor + 1)
        assert caught.value.reason == "DATASET_CHANGED"
    assert touched[7]


@pytest.mark.parametrize("replacement", [{"lengths": (9, 9)}, {"side": 11}])
def test_a_shorter_file_or_other_frame_sizes_are_seen(
    anchors: FileAnchors, tmp_path: Path, replacement: dict[str, object]
) -> None:
    write_public_dataset(tmp_path / "a.h5", public_columns(**replacement))
    with pytest.raises(FailedPrecondition, match="holds other frames"):
        anchors.read_frames(0, 12)


def test_a_file_that_is_gone_is_not_found(anchors: FileAnchors, tmp_path: Path) -> None:
    (tmp_path / "a.h5").unlink()
    with pytest.raises(NotFound, match=r"dataset 'a\.h5' does not exist"):
        anchors.read_frames(0, 1)

"""Anchors of a file that is opened for every read, and must stay what it was."""

from pathlib import Path

import numpy as np
import pytest
from acpc.contract import SMALL_ARRAYS, AnchorSource
from acpc_server.data import AnchorBatch, DatasetStore
from acpc_server.data.dataset_anchors import FileAnchors
from acpc_server.errors import FailedPrecondition, NotFound
from public_dataset import public_columns, write_public_dataset

SOURCE = AnchorSource(dataset="a.h5", task="tworoom", count=12, frameskip=2)
WINDOW = {"history": 2, "horizon": 3}


@pytest.fixture
def anchors(tmp_path: Path) -> FileAnchors:
    write_public_dataset(tmp_path / "a.h5", public_columns())
    return DatasetStore(tmp_path).anchors(SOURCE, **WINDOW)


@pytest.fixture
def batch(anchors: FileAnchors, tmp_path: Path) -> AnchorBatch:
    with DatasetStore(tmp_path).drawn(SOURCE, **WINDOW) as drawn:
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

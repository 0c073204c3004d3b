"""Anchors of jobs are refused early, opened once, and known again by what they hold."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import plain_model
import pytest
from acpc.contract import SMALL_ARRAYS, AnchorArrays, AnchorSample, AnchorSource, digest_of
from acpc_server.data import DatasetStore
from acpc_server.data.anchor_sets import AnchorStore, UploadHeader, store_drawn
from acpc_server.encoding import AnchorSetSource, AnySource
from acpc_server.encoding.anchor_readers import AnchorReaders
from acpc_server.errors import FailedPrecondition, InvalidArgument
from acpc_server.jobs import pack, unpack
from acpc_server.observe import Metrics
from anchor_batches import ROOMY, put
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from public_dataset import public_columns, write_public_dataset

HISTORY, HORIZON, COUNT = 2, 3, 12
WANTED = {"history": HISTORY, "horizon": HORIZON}
SOURCE = AnchorSource(dataset="a.h5", task="tworoom", count=COUNT, frameskip=2)
CARD = replace(plain_model.CARD, history=HISTORY, action_block_dim=4)


@dataclass(frozen=True)
class Place:
    root: Path

    def __post_init__(self) -> None:
        write_public_dataset(self.root / "a.h5", public_columns())

    def readers(self) -> AnchorReaders:
        return AnchorReaders(DatasetStore(self.root), self.store())

    def store(self) -> AnchorStore:
        return AnchorStore(self.root / "sets", ROOMY, Metrics())

    def make(self, **wanted: int) -> AnchorSetSource:
        window = {**WANTED, **wanted}
        header = UploadHeader(request_id=str(window), anchors=COUNT, **window)
        with (
            DatasetStore(self.root).drawn(SOURCE, **window) as drawn,
            self.store().upload(header) as upload,
        ):
            digest = store_drawn(upload, drawn, lambda: None).digest
        return self.readers().named_set(digest)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def look_up() -> None:
    """Nothing ends the reading."""


@pytest.fixture(params=["dataset", "set"])
def source(request: pytest.FixtureRequest, place: Place) -> AnySource:
    return SOURCE if request.param == "dataset" else place.make()


def test_anchors_open_and_reopen_in_any_process(place: Place, source: AnySource) -> None:
    readers = place.readers()
    readers.check(source, CARD, **WANTED)
    opened, identity = readers.open(source, readers.stamp(source), check=look_up, **WANTED)
    assert (opened.count, opened.history, opened.horizon) == (COUNT, HISTORY, HORIZON)
    assert identity["digest"] == opened.digest
    assert readers.reopen(source, identity, **WANTED) is opened
    other = place.readers().reopen(source, identity, **WANTED)
    assert other is not opened
    assert other.digest == opened.digest
    np.testing.assert_array_equal(other.read_frames(3, 9), opened.read_frames(3, 9))


@pytest.mark.parametrize("sample", [AnchorSample.WINDOWS, AnchorSample.EPISODES])
@pytest.mark.parametrize("one_per_episode", [False, True])
def test_fewer_anchors_of_a_dataset_are_the_first_of_more(
    place: Place, sample: AnchorSample, one_per_episode: bool
) -> None:
    """The windows, not the labels: those split at the median of the anchors that there are."""
    wanted = replace(SOURCE, count=5, sample=sample, one_per_episode=one_per_episode)
    readers = place.readers()
    stamp = readers.stamp(SOURCE)
    more, _ = readers.open(wanted, stamp, check=look_up, **WANTED)
    few, identity = readers.open(replace(wanted, count=3), stamp, check=look_up, **WANTED)
    for name in set(SMALL_ARRAYS) - {"labels"}:
        np.testing.assert_array_equal(getattr(few, name), getattr(more, name)[:3])
    np.testing.assert_array_equal(few.read_frames(0, 3), more.read_frames(0, 3))
    reads: list[int] = []
    again, known = place.readers().open(
        wanted, stamp, check=lambda: reads.append(1), known=identity, **WANTED
    )
    assert again.digest == more.digest
    assert len(reads) == 1, "only the frames of the others are read"
    assert known["frames"].startswith(identity["frames"].rstrip("=")[:-1])


def test_the_first_of_a_set_keep_their_labels(place: Place) -> None:
    source, readers = place.make(), place.readers()
    whole, _ = readers.open(source, source.digest, check=look_up, **WANTED)
    part = replace(source, count=5)
    first, identity = readers.open(part, source.digest, check=look_up, **WANTED)
    assert (first.count, first.horizon) == (5, HORIZON)
    np.testing.assert_array_equal(first.labels, whole.labels[:5])
    np.testing.assert_array_equal(first.read_frames(1, 4), whole.read_frames(1, 4))
    assert identity["digest"] == first.digest != whole.digest
    assert place.readers().reopen(part, identity, **WANTED).digest == first.digest
    own = AnchorArrays(HISTORY, whole.read_frames(0, 5), **first.small_arrays())
    assert first.digest == digest_of(own), "a set of these anchors alone has it too"


def test_a_changed_dataset_is_told_by_stamp_and_by_content(place: Place) -> None:
    readers = place.readers()
    stamp = readers.stamp(SOURCE)
    _, identity = readers.open(SOURCE, stamp, check=look_up, **WANTED)
    os.utime(place.root / "a.h5", ns=(1, 1))
    with pytest.raises(FailedPrecondition, match="has changed since") as caught:
        readers.open(SOURCE, stamp, check=look_up, **WANTED)
    assert caught.value.reason == "DATASET_CHANGED"
    place.readers().reopen(SOURCE, identity, **WANTED).read_frames(0, COUNT)
    content = public_columns()
    content.columns["pos_agent"][:] += np.random.default_rng(1).normal(size=(177, 2)).astype("f4")
    write_public_dataset(place.root / "a.h5", content)
    with pytest.raises(FailedPrecondition, match="has changed since") as caught:
        place.readers().reopen(SOURCE, identity, **WANTED)
    assert caught.value.reason == "DATASET_CHANGED"


def test_reading_a_set_puts_off_its_expiry(place: Place) -> None:
    source, readers = place.make(), place.readers()
    _, identity = readers.open(source, source.digest, check=look_up, **WANTED)
    (info,) = place.root.rglob("set.json")
    os.utime(info, (1, 1))
    readers.reopen(source, identity, **WANTED)
    assert place.store().get(source.digest).used_time > 1


def test_frames_are_read_for_their_digest_by_the_first_job_alone(place: Place) -> None:
    readers, reads = place.readers(), []

    def count() -> None:
        reads.append(1)

    opened = [readers.open(SOURCE, readers.stamp(SOURCE), check=count, **WANTED) for _ in range(3)]
    assert len(reads) == 1
    assert opened[0] == opened[1] == opened[2]
    os.utime(place.root / "a.h5", ns=(1, 1))
    again = readers.open(SOURCE, readers.stamp(SOURCE), check=count, **WANTED)
    assert len(reads) == 2
    assert again[1] == opened[0][1]


def test_an_older_job_does_not_spoil_the_anchors_of_a_newer_one(place: Place) -> None:
    """Only the frames change, so that the older job's anchors are known but for their frames."""
    readers = place.readers()
    _, identity = readers.open(SOURCE, readers.stamp(SOURCE), check=look_up, **WANTED)
    content = public_columns()
    content.columns["pixels"][:] ^= 1
    write_public_dataset(place.root / "a.h5", content)
    readers = place.readers()
    stale = readers.reopen(SOURCE, identity, **WANTED)
    with pytest.raises(FailedPrecondition, match="holds other frames"):
        stale.read_frames(0, 1)
    fresh, newer = readers.open(SOURCE, readers.stamp(SOURCE), check=look_up, **WANTED)
    assert fresh.read_frames(0, COUNT).shape[0] == COUNT
    assert newer["digest"] != identity["digest"]


def test_the_latest_two_readers_are_kept(place: Place) -> None:
    readers = place.readers()
    sources = [replace(SOURCE, seed=seed) for seed in range(3)]
    stamp = readers.stamp(SOURCE)
    opened = [readers.open(source, stamp, check=look_up, **WANTED) for source in sources]
    for which in (1, 2):
        anchors, identity = opened[which]
        assert readers.reopen(sources[which], identity, **WANTED) is anchors
    anchors, identity = opened[0]
    assert readers.reopen(sources[0], identity, **WANTED) is not anchors
    assert readers.reopen(sources[1], opened[1][1], **WANTED) is not opened[1][0]


def test_a_set_that_is_made_again_from_its_dataset_has_its_windows(place: Place) -> None:
    """One that was uploaded does not say them, and has the same digest."""
    drawn, readers = place.make(), place.readers()
    anchors, _ = readers.open(drawn, drawn.digest, check=look_up, **WANTED)
    assert anchors.windows == 123
    frames = anchors.read_frames(0, COUNT)
    place.store().delete(drawn.digest, lambda digest: False)
    batch = AnchorArrays(HISTORY, frames, **anchors.small_arrays())
    uploaded = put(place.store(), batch, UploadHeader(request_id="up", anchors=COUNT, **WANTED))
    assert uploaded.digest == drawn.digest
    found, _ = readers.open(drawn, drawn.digest, check=look_up, **WANTED)
    assert found.windows is None
    place.store().delete(drawn.digest, lambda digest: False)
    assert place.make() == drawn
    found, identity = readers.open(drawn, drawn.digest, check=look_up, **WANTED)
    assert found.windows == 123
    assert readers.reopen(drawn, identity, **WANTED).windows == 123


@pytest.mark.parametrize(
    ("wanted", "card", "message", "exactly"),
    [
        ({"history": 1}, {}, "2 frames of history, but this job needs 1", True),
        ({"history": 3}, {}, "2 frames of history, but this job needs 3", False),
        ({"horizon": 2}, {}, "needs 2; make a set with 2, or one with the states and labels", True),
        ({"horizon": 4}, {}, "3 future frames, but this job needs 4", False),
        ({}, {"action_block_dim": 10}, "4 wide, but the checkpoint expects .* = 10", False),
    ],
)
def test_a_set_that_cannot_serve_is_refused_with_both_numbers(
    place: Place, wanted: dict[str, int], card: dict[str, int], message: str, exactly: bool
) -> None:
    """Where the endpoint's state and label are not used, a set may have more than is needed."""
    source, readers, window = place.make(), place.readers(), {**WANTED, **wanted}
    with pytest.raises(InvalidArgument, match=message) as caught:
        readers.check(source, replace(CARD, **card), **window)
    assert caught.value.field == "anchor_set"
    if exactly:
        readers.check(source, replace(CARD, **card), **window, exact=False)
        return
    with pytest.raises(InvalidArgument, match=message):
        readers.check(source, replace(CARD, **card), **window, exact=False)


@given(
    hnp.arrays(
        st.sampled_from([np.float64, np.float32, np.int64, np.uint8]),
        hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=4),
    )
)
def test_packed_arrays_restore_bit_for_bit(array: np.ndarray) -> None:
    back = unpack(pack(array))
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    assert back.tobytes() == array.tobytes()

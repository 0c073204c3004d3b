"""The store of anchor sets: what goes in comes out, once, checked, within its quotas."""

import dataclasses
import os
import resource
import shutil
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from acpc.contract import AnchorSource
from acpc_server.data import AnchorBatch, load_task, open_dataset
from acpc_server.data.anchor_sets import AnchorStore, store_drawn
from acpc_server.errors import (
    Aborted,
    AcpcError,
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
)
from acpc_server.observe import Metrics
from anchor_batches import (
    COUNT,
    HISTORY,
    HORIZON,
    LIMITS,
    anchors,
    drawn_anchors,
    header,
    part,
    put,
    store,
    unused,
)
from public_dataset import public_columns, write_public_dataset


@pytest.mark.parametrize(("cut", "packed"), [(1, True), (4, False), (COUNT, True)])
def test_a_set_reads_as_the_batch_it_was_made_of(tmp_path: Path, cut: int, packed: bool) -> None:
    batch, where = anchors(), store(tmp_path)
    info = put(where, batch, header(description="two words"), cut, packed)
    assert info.digest == batch.digest
    stored = where.open(info.digest)
    assert (stored.digest, stored.count, stored.history) == (batch.digest, COUNT, HISTORY)
    assert (stored.horizon, stored.frame_size) == (HORIZON, (12, 9))
    for name, array in batch.small_arrays().items():
        found = getattr(stored, name)
        assert found.dtype == array.dtype
        np.testing.assert_array_equal(found, array)
    for start, stop in ((0, COUNT), (3, 9), (7, 8), (0, 1), (10, 11), (5, 5)):
        np.testing.assert_array_equal(stored.read_frames(start, stop), batch.frames[start:stop])
    assert (info.description, info.action_block_dim, info.state_dim) == ("two words", 4, 2)
    on_disk = sum(f.stat().st_size for f in (tmp_path / "anchors/sets" / info.digest).iterdir())
    assert 0 < on_disk - info.size_bytes < 2000  # set.json itself
    assert [found.info for found in where.list()] == [info]


def test_a_set_has_short_names_which_never_mean_two_sets(tmp_path: Path) -> None:
    where = store(tmp_path)
    with pytest.raises(NotFound, match=r"^there is no anchor set yet; upload one$"):
        where.get("latest")
    first, second = put(where, anchors(), header("kitchen")), put(where, anchors(seed=1), header())
    for name in (first.digest, first.digest[:8], "kitchen"):
        assert where.get(name).info == first
        assert where.open(name).digest == first.digest
    assert where.get("latest").info == where.list()[0].info
    twin = tmp_path / "anchors/sets" / (first.digest[:10] + "0" * 54)
    shutil.copytree(tmp_path / "anchors/sets" / second.digest, twin)
    with pytest.raises(InvalidArgument, match=f"several anchor sets: .*{first.digest}"):
        where.delete(first.digest[:9], unused)
    for none in ("0" * 8, "f" * 63):
        with pytest.raises(NotFound):
            where.get(none)
    where.delete("kitchen", unused)
    with pytest.raises(InvalidArgument, match="8 to 64 hexadecimal digits"):
        where.get("kitchen")


def test_equal_content_is_one_set_however_cut_and_by_whomever(tmp_path: Path) -> None:
    where = store(tmp_path)
    first = put(where, anchors(), header("a", description="first"), 4)
    other = AnchorStore(tmp_path / "anchors", LIMITS, Metrics())  # another server on the volume
    assert put(other, anchors(), header("b"), 3, packed=True) == first
    with where.upload(header("c", expected_digest=first.digest)) as upload:
        assert upload.finished == first  # nothing needs to be sent
    assert put(where, anchors(seed=1), header("d")).digest != first.digest
    assert len(where.list()) == 2
    assert not list((tmp_path / "anchors").glob("uploads/*/set"))
    assert not list((tmp_path / "anchors/trash").iterdir())


def every_endpoint(seed: int = 7) -> AnchorBatch:
    """The batch of ``anchors``, with states and labels of every future frame."""
    batch, rng = anchors(), np.random.default_rng(seed)
    states, labels = rng.standard_normal((COUNT, HORIZON, 2)), rng.integers(0, 2, (COUNT, HORIZON))
    states[:, -1], labels[:, -1] = batch.endpoint_states, batch.labels
    return anchors(endpoint_states=states, labels=labels)


@pytest.mark.parametrize("horizon", range(1, HORIZON + 1))
def test_a_set_at_a_shorter_horizon_is_the_set_that_ends_there(
    tmp_path: Path, horizon: int
) -> None:
    """Frames, blocks, states, labels and digest; at its own horizon it is the set without them."""
    batch, where = every_endpoint(), store(tmp_path)
    info = put(where, batch, header())
    assert (info.digest, info.state_dim) == (anchors().digest, 2)
    assert len(info.endpoints_digest) == 64
    steps = HISTORY + horizon
    wanted = AnchorBatch(
        history=HISTORY,
        frames=batch.frames[:, :steps],
        action_blocks=batch.action_blocks[:, : steps - 1],
        endpoint_states=batch.endpoint_states[:, horizon - 1],
        labels=batch.labels[:, horizon - 1],
        anchor_ids=batch.anchor_ids,
        trajectory_ids=batch.trajectory_ids,
    )
    found = where.open(info.digest).at_horizon(horizon)
    assert (found.digest, found.horizon) == (wanted.digest, horizon)
    np.testing.assert_array_equal(found.read_frames(2, 9), wanted.frames[2:9])
    for name, array in wanted.small_arrays().items():
        np.testing.assert_array_equal(getattr(found, name), array)


def test_a_set_with_its_last_states_alone_has_one_horizon(tmp_path: Path) -> None:
    where = store(tmp_path)
    stored = where.open(put(where, anchors(), header()).digest)
    assert stored.info.endpoints_digest == ""
    assert stored.at_horizon(HORIZON) is stored
    with pytest.raises(FailedPrecondition, match="have 3 future frames and cannot be used at 2"):
        stored.at_horizon(HORIZON - 1)


def test_sets_that_end_alike_are_not_taken_for_each_other(tmp_path: Path) -> None:
    where = store(tmp_path)
    first = put(where, every_endpoint(), header("a"))
    assert put(where, anchors(), header("b")) == first
    for _ in range(2):
        with pytest.raises(AlreadyExists, match="other states or labels before the last"):
            put(where, every_endpoint(seed=8), header("c"))
    assert where.open(first.digest).info == first


def test_states_are_given_at_one_frame_or_at_all() -> None:
    batch = every_endpoint()
    for wrong in (
        {"endpoint_states": batch.endpoint_states, "labels": anchors().labels},
        {"endpoint_states": batch.endpoint_states[:, 1:], "labels": batch.labels[:, 1:]},
    ):
        with pytest.raises(InvalidArgument, match="at the last future frame, or both at all 3"):
            anchors(**wrong)


def test_an_upload_goes_on_where_it_was_left(tmp_path: Path) -> None:
    batch, where = anchors(), store(tmp_path)
    with where.upload(header()) as upload:
        upload.append(part(batch, 0, 4))
        upload.append(part(batch, 4, 5))
        with pytest.raises(FailedPrecondition, match="only 5 of 11") as caught:
            upload.finish()
        assert caught.value.reason == "UPLOAD_INCOMPLETE"
    assert where.progress("mine") == (5, None)
    later = AnchorStore(tmp_path / "anchors", LIMITS, Metrics())
    assert later.progress("mine") == (5, None)
    info = put(later, batch, header(), 3)
    assert info.digest == batch.digest
    finished, stored = where.progress("mine")
    assert (finished, stored and stored.info) == (COUNT, info)
    assert put(where, batch, header()) == info
    with pytest.raises(NotFound, match="no upload has request_id 'theirs'"):
        where.progress("theirs")


@pytest.mark.parametrize("left", ["nothing", "set.json", "done"])
def test_a_finish_that_was_killed_is_taken_up(tmp_path: Path, left: str) -> None:
    """Between the last shard and the rename there are three moments."""
    batch, where = anchors(), store(tmp_path)
    info = put(where, batch, header())
    (folder,) = (tmp_path / "anchors/uploads").iterdir()
    (tmp_path / "anchors/sets" / info.digest).rename(folder / "set")
    if left != "done":
        (folder / "done").unlink()
    if left == "nothing":
        (folder / "set/set.json").unlink()
        (folder / "set/anchors.npz").unlink()
    assert where.progress("mine") == (COUNT, None)
    found = put(where, batch, header())
    assert (found.digest, found.size_bytes) == (info.digest, info.size_bytes)
    np.testing.assert_array_equal(where.open(info.digest).read_frames(0, 2), batch.frames[:2])


@pytest.mark.parametrize("shard", [0, 1, 2])
def test_an_upload_whose_shards_are_damaged_begins_anew(tmp_path: Path, shard: int) -> None:
    batch, where = anchors(), store(tmp_path)
    with where.upload(header()) as upload:
        for start in (0, 4, 8):
            upload.append(part(batch, start, min(start + 4, COUNT)))
    (folder,) = (tmp_path / "anchors/uploads").iterdir()
    path = folder / f"set/{4 * shard:08d}.npz"
    path.write_bytes(path.read_bytes()[:-100])
    assert where.progress("mine")[0] == (0 if shard == 2 else COUNT)
    if shard == 1:
        with pytest.raises(FailedPrecondition), where.upload(header()) as upload:
            upload.finish()
    assert put(where, batch, header()).digest == batch.digest


def test_one_call_at_a_time_works_on_an_upload(tmp_path: Path) -> None:
    where = store(tmp_path)
    with where.upload(header()):
        with (
            pytest.raises(Aborted, match="in use by another call") as caught,
            store(tmp_path).upload(header()),
        ):
            pass
        assert caught.value.retry_after
        with where.upload(header("second")):
            with (
                pytest.raises(ResourceExhausted, match="2 uploads") as over,
                where.upload(header("third")),
            ):
                pass
            assert over.value.reason == "TOO_MANY_UPLOADS"
    with where.upload(header()), where.upload(header("third")):
        pass


def test_a_request_id_means_one_header(tmp_path: Path) -> None:
    where = store(tmp_path)
    with where.upload(header()):
        pass
    for other in ({"anchors": 12}, {"history": 3}, {"description": "x"}):
        with pytest.raises(AlreadyExists, match="another header"), where.upload(header(**other)):
            pass


def shard_faults() -> list[tuple[str, AnchorBatch, str]]:
    wide = np.zeros((2, 4, 5), np.float32)
    return [
        ("frames.shape", anchors(2, frames=np.zeros((2, 5, 9, 12, 3), np.uint8)), "ends in"),
        ("frames.shape", anchors(12), "12 anchors, but 9 are left"),
        ("action_blocks.shape", anchors(2, action_blocks=wide), "ends in 5, but .* in 4"),
        ("endpoint_states.shape", anchors(2, endpoint_states=np.zeros((2, 3))), "ends in 3"),
        ("frames.shape", dataclasses.replace(anchors(2), history=1), "5 frames an anchor"),
    ]


@pytest.mark.parametrize(("field", "shard", "message"), shard_faults())
def test_a_shard_must_fit(tmp_path: Path, field: str, shard: AnchorBatch, message: str) -> None:
    batch, where = anchors(), store(tmp_path)
    with where.upload(header()) as upload:
        upload.append(part(batch, 0, 2))
        with pytest.raises(InvalidArgument, match=message) as caught:
            upload.append(shard)
        assert caught.value.field == field
        with pytest.raises(InvalidArgument, match="in every shard, or in none"):
            upload.append(part(batch, 2, 4), own_trajectories=True)
    with where.upload(header()) as upload, pytest.raises(InvalidArgument, match=message):
        upload.append(shard)  # the same after a restart
    assert put(where, batch, header()).digest == batch.digest


def test_a_wrong_expectation_begins_anew(tmp_path: Path) -> None:
    where, said = store(tmp_path), header(expected_digest="0" * 64)
    with pytest.raises(InvalidArgument, match=f"content has {anchors().digest}") as caught:
        put(where, anchors(), said)
    assert caught.value.field == "expected_digest"
    assert where.progress("mine") == (0, None)
    assert where.list() == []


def test_arrays_that_a_score_must_hold_are_bounded(tmp_path: Path) -> None:
    shard = anchors(1, endpoint_states=np.zeros((1, 2**20)))
    with store(tmp_path, set_bytes=2**30, store_bytes=2**30).upload(header(anchors=50)) as upload:
        with pytest.raises(ResourceExhausted, match="bytes of actions and states") as caught:
            upload.append(shard)
        assert caught.value.reason == "ANCHOR_SET_TOO_LARGE"


def test_the_quota_counts_what_others_stored_and_is_freed_by_deletion(tmp_path: Path) -> None:
    size = put(store(tmp_path), anchors(), header()).size_bytes
    where = store(tmp_path, store_bytes=size * 3 // 2)
    with pytest.raises(ResourceExhausted):
        put(where, anchors(seed=1), header("b"), COUNT)
    store(tmp_path).delete(anchors().digest, unused)
    put(where, anchors(seed=1), header("b"), COUNT)


def test_a_set_in_use_is_not_deleted(tmp_path: Path) -> None:
    where = store(tmp_path)
    digest = put(where, anchors(), header()).digest
    with pytest.raises(FailedPrecondition, match="job that has not ended") as caught:
        where.delete(digest, lambda asked: asked == digest)
    assert caught.value.reason == "ANCHOR_SET_IN_USE"
    reading = where.open(digest)
    where.delete(digest, unused)
    for call in (where.open, where.get, where.touch):
        with pytest.raises(NotFound):
            call(digest)
    with pytest.raises(NotFound):
        where.delete(digest, unused)
    with pytest.raises(FailedPrecondition, match="gone or damaged"):
        reading.read_frames(0, 1)
    assert put(where, anchors(), header()).digest == digest  # the request id is free again


@pytest.mark.parametrize("digest", ["", "..", "a" * 7, "A" * 64, "../../" + "a" * 58, "\0" * 64])
def test_a_name_that_is_no_digest_reaches_no_file(tmp_path: Path, digest: str) -> None:
    where = store(tmp_path)
    for call in (where.open, where.get, lambda name: where.delete(name, unused)):
        with pytest.raises(InvalidArgument, match="64 hexadecimal digits"):
            call(digest)


@pytest.mark.parametrize("name", ["00000000.npz", "00000004.npz", "anchors.npz", "set.json"])
def test_a_damaged_set_gives_no_numbers(tmp_path: Path, name: str) -> None:
    """Wherever a byte is flipped: the right values, or a refusal."""
    batch, where = anchors(), store(tmp_path)
    digest = put(where, batch, header()).digest
    path = tmp_path / "anchors/sets" / digest / name
    whole, refused = path.read_bytes(), 0
    for at in np.linspace(0, 1, 23):
        damaged = bytearray(whole)
        damaged[int(at * (len(whole) - 1))] ^= 0x55
        path.write_bytes(damaged)
        try:
            stored = where.open(digest)
            frames = stored.read_frames(0, COUNT)
        except AcpcError as error:
            assert isinstance(error, FailedPrecondition)
            assert error.reason == "ANCHOR_SET_DAMAGED"
            refused += 1
            continue
        np.testing.assert_array_equal(frames, batch.frames)
        for kind, array in stored.small_arrays().items():
            np.testing.assert_array_equal(array, batch.small_arrays()[kind])
    assert refused > 5
    where.delete(digest, unused)


def test_a_shard_of_another_set_is_not_taken(tmp_path: Path) -> None:
    where = store(tmp_path)
    one, two = (put(where, anchors(seed=s), header(str(s)), COUNT).digest for s in (1, 2))
    sets = tmp_path / "anchors/sets"
    (sets / one / "00000000.npz").write_bytes((sets / two / "00000000.npz").read_bytes())
    with pytest.raises(FailedPrecondition, match="do not have their sha256"):
        where.open(one).read_frames(0, 1)


def age(path: Path, seconds: float) -> None:
    for found in (path, *path.rglob("*")):
        os.utime(found, (time.time() - seconds,) * 2)


def test_retention(tmp_path: Path) -> None:
    where = store(tmp_path)
    kept, used, gone, busy = (put(where, anchors(seed=s), header(str(s))).digest for s in range(4))
    for digest in (used, gone, busy):
        age(tmp_path / "anchors/sets" / digest, 4000)
    where.open(used)
    expires = where.expire_time(where.get(used))
    assert 3590 < expires - time.time() < 3610
    for request in ("fresh", "stale", "working"):
        with where.upload(header(request)) as upload:
            upload.append(part(anchors(), 0, 3))
    for folder in (tmp_path / "anchors/uploads").iterdir():
        if '"fresh"' not in (folder / "header.json").read_text():
            age(folder, 61)
    (tmp_path / "anchors/trash/remains").mkdir()
    with where.upload(header("working")):
        where.tidy(lambda digest: digest == busy)
    assert {stored.info.digest for stored in where.list()} == {kept, used, busy}
    assert where.progress("fresh") == where.progress("working") == (3, None)
    for folder in (tmp_path / "anchors/uploads").iterdir():
        age(folder, 61)
    where.tidy(unused)
    for request in ("stale", "2", "fresh"):  # an upload's record goes with its set
        with pytest.raises(NotFound):
            where.progress(request)
    assert where.progress("1")[0] == COUNT
    assert not list((tmp_path / "anchors/trash").iterdir())
    assert store(tmp_path, keep_seconds=0.0).expire_time(where.get(used)) is None


def test_a_set_is_made_from_a_dataset_with_a_few_windows_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 150
    write_public_dataset(tmp_path / "a.h5", public_columns([60] * 5, side=48))
    where = store(tmp_path, store_bytes=2**30, set_bytes=2**30, set_anchors=count)
    with open_dataset(tmp_path, "a.h5") as dataset:
        source = AnchorSource(dataset="a.h5", task="tworoom", count=count, frameskip=2)
        task, window = load_task("tworoom", tmp_path), {"history": HISTORY, "horizon": HORIZON}
        drawn = drawn_anchors(dataset, task, source, **window)
        batch = drawn.batch()
        monkeypatch.setattr("acpc_server.data.anchors.CUT_BYTES", batch.frames.nbytes // 50)
        tracemalloc.start()
        with where.upload(header(anchors=count)) as upload:
            upload.append(part(batch, 3, 4))  # of a dataset since replaced
            info = store_drawn(upload, drawn, lambda: None)
        stored = where.open(info.digest)
        for start in range(0, count, 10):
            stored.read_frames(start, start + 10)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert info.digest == drawn.digest == batch.digest
    np.testing.assert_array_equal(stored.read_frames(0, count), batch.frames)
    assert peak < batch.frames.nbytes / 3


def test_threads_read_one_set(tmp_path: Path) -> None:
    batch, where = anchors(), store(tmp_path)
    stored = where.open(put(where, batch, header(), 1).digest)
    wrong: list[int] = []

    def read(seed: int) -> None:
        for start in np.random.default_rng(seed).integers(0, COUNT, 40).tolist():
            if not np.array_equal(stored.read_frames(start, start + 1), batch.frames[start][None]):
                wrong.append(start)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_an_error_of_the_parser_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads of Python 3.11 that parse at once may get one, and NumPy parses."""
    batch, where = anchors(), store(tmp_path)
    stored = where.open(put(where, batch, header()).digest)
    load: Callable[..., object] = np.load
    failures = [SystemError("AST constructor recursion depth mismatch")]

    def parsed(*given: object, **named: object) -> object:
        if failures:
            raise failures.pop()
        return load(*given, **named)

    monkeypatch.setattr(np, "load", parsed)
    np.testing.assert_array_equal(stored.read_frames(0, 1), batch.frames[:1])
    assert not failures


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file of this process grows beyond a size, as on a volume with so much room."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def files(root: Path) -> set[str]:
    return {path.name for path in (root / "anchors").rglob("*") if path.is_file()} - {"lock"}


@pytest.mark.parametrize(("room", "left"), [(10, set()), (2000, {"header.json"})])
def test_an_upload_on_a_full_volume(tmp_path: Path, room: int, left: set[str]) -> None:
    where = store(tmp_path)
    with largest_file(room):
        with pytest.raises(ResourceExhausted, match="volume of the anchor sets is full") as caught:
            put(where, anchors(), header())
        assert caught.value.reason == "ANCHOR_VOLUME_FULL"
        assert files(tmp_path) == left
        assert where.list() == []
    assert put(where, anchors(), header()).anchors == COUNT


def test_a_volume_that_fills_up_before_the_last_file(tmp_path: Path) -> None:
    """The shards are stored; what joins them is not."""
    where = store(tmp_path)
    with where.upload(header()) as upload:
        for start in range(0, COUNT, 4):
            upload.append(part(anchors(), start, min(start + 4, COUNT)))
        with largest_file(500), pytest.raises(ResourceExhausted, match="volume"):
            upload.finish()
    assert not [name for name in files(tmp_path) if name.endswith(".part")]
    assert where.list() == []
    assert where.progress("mine") == (COUNT, None), "the upload goes on where it was"
    with where.upload(header()) as upload:
        assert upload.finish().digest == anchors().digest

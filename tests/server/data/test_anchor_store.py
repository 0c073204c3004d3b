"""The store of anchor sets: what goes in comes out, once, checked, within its quotas."""

import os
import resource
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from acpc.contract import AnchorArrays, digest_of, frame_digests
from acpc_server.data import Anchors
from acpc_server.errors import (
    AcpcError,
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
)
from anchor_batches import (
    COUNT,
    EXTRAS,
    HISTORY,
    HORIZON,
    anchors,
    header,
    put,
    store,
    unused,
)


@pytest.mark.parametrize(("cut", "packed"), [(1, True), (4, False), (COUNT, True)])
@pytest.mark.parametrize("extras", [{}, EXTRAS], ids=["plain", "extras"])
def test_a_set_reads_as_the_batch_it_was_made_of(
    tmp_path: Path, extras: dict[str, np.ndarray], cut: int, packed: bool
) -> None:
    batch, where = anchors(extras=extras), store(tmp_path)
    info = put(where, batch, header(description="two words"), cut, packed)
    stored = where.open(info.digest)
    assert info.digest == stored.digest == digest_of(batch)
    assert (stored.count, stored.history, stored.horizon) == (COUNT, HISTORY, HORIZON)
    assert stored.frame_size == (12, 9)
    for name, array in batch.small.items():
        found = getattr(stored, name)
        assert found.dtype == array.dtype
        np.testing.assert_array_equal(found, array)
    assert {x.name: (x.dtype, x.shape) for x in stored.extras} == {
        name: (array.dtype.name, array.shape[1:]) for name, array in extras.items()
    }
    assert stored.extras == Anchors(batch).extras == info.extras
    for start, stop in ((0, COUNT), (3, 9), (7, 8), (0, 1), (10, 11), (5, 5)):
        np.testing.assert_array_equal(stored.read_frames(start, stop), batch.frames[start:stop])
        for name, array in extras.items():
            found = stored.read(name, start, stop)
            assert found.dtype == array.dtype
            np.testing.assert_array_equal(found, array[start:stop])
    first, few = stored.first(4), Anchors(batch.part(0, 4))
    assert (first.digest, first.extras) == (few.digest, few.extras)
    assert (info.description, info.action_block_dim, info.state_dim) == ("two words", 4, 2)
    on_disk = sum(f.stat().st_size for f in (tmp_path / "anchors/sets" / info.digest).iterdir())
    assert 0 < on_disk - info.size_bytes < 2000  # set.json itself
    assert [found.info for found in where.list()] == [info]
    described = where.described(where.get(info.digest))
    assert [x.name for x in described.to_message().extras] == sorted(extras)
    assert described.groups == ({"light:0.5": 1, "night": 4} if extras else {})


def test_the_digest_covers_every_extra_array() -> None:
    night = EXTRAS["views/night"].copy()
    night.flat[-1] ^= 1
    renamed = {"views/dusk" if name == "views/night" else name: x for name, x in EXTRAS.items()}
    changed = ({}, EXTRAS, {**EXTRAS, "views/night": night}, renamed)
    made = [anchors(extras=extras) for extras in changed]
    assert len({digest_of(one) for one in made}) == 4
    assert [Anchors(one).digest for one in made] == [digest_of(one) for one in made]


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


def every_endpoint(seed: int = 7) -> AnchorArrays:
    """A batch with states and labels of every future frame, and arrays that few sets have."""
    batch, rng = anchors(), np.random.default_rng(seed)
    states, labels = rng.standard_normal((COUNT, HORIZON, 2)), rng.integers(0, 2, (COUNT, HORIZON))
    states[:, -1], labels[:, -1] = batch.endpoint_states, batch.labels
    return anchors(endpoint_states=states, labels=labels, extras=EXTRAS)


@pytest.mark.parametrize("horizon", range(1, HORIZON + 1))
def test_a_set_at_a_shorter_horizon_is_the_set_that_ends_there(
    tmp_path: Path, horizon: int
) -> None:
    """In all its arrays and its digest; at its own horizon it is the set without them."""
    batch, where = every_endpoint(), store(tmp_path)
    info = put(where, batch, header())
    assert (info.digest, info.state_dim) == (digest_of(anchors(extras=EXTRAS)), 2)
    assert len(info.endpoints_digest) == 64
    steps = HISTORY + horizon
    arrays = {
        "frames": batch.frames[:, :steps],
        "action_blocks": batch.action_blocks[:, : steps - 1],
        "endpoint_states": batch.endpoint_states[:, horizon - 1],
        "labels": batch.labels[:, horizon - 1],
        "proprio": np.ascontiguousarray(EXTRAS["proprio"][:, :steps]),
    }
    wanted = AnchorArrays.of(HISTORY, {**batch.arrays, **arrays})
    found = where.open(info.digest).at_horizon(horizon)
    assert (found.digest, found.horizon) == (digest_of(wanted), horizon)
    for name, array in wanted.extras.items():
        np.testing.assert_array_equal(found.read(name, 2, 9), array[2:9])
    np.testing.assert_array_equal(found.read_frames(2, 9), wanted.frames[2:9])
    for name, array in wanted.small.items():
        np.testing.assert_array_equal(getattr(found, name), array)


def test_a_set_with_its_last_states_alone_has_one_horizon(tmp_path: Path) -> None:
    where = store(tmp_path)
    stored = where.open(put(where, anchors(), header()).digest)
    assert stored.endpoints_digest == ""
    assert stored.at_horizon(HORIZON) is stored
    with pytest.raises(FailedPrecondition, match="have 3 future frames and cannot be used at 2"):
        stored.at_horizon(HORIZON - 1)


def test_sets_that_end_alike_are_not_taken_for_each_other(tmp_path: Path) -> None:
    where = store(tmp_path)
    first = put(where, every_endpoint(), header("a"))
    assert put(where, anchors(extras=EXTRAS), header("b")) == first
    for _ in range(2):
        with pytest.raises(AlreadyExists, match="other states or labels before the last"):
            put(where, every_endpoint(seed=8), header("c"))
    assert where.get(first.digest).info == first


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


def test_an_upload_goes_on_under_the_store_of_another_process(tmp_path: Path) -> None:
    batch = anchors(extras=EXTRAS)
    with store(tmp_path).upload(header()) as upload:
        upload.append(batch.part(0, 4))
    where = store(tmp_path)
    assert where.progress("mine") == (4, None)
    assert put(where, batch, header()).digest == digest_of(batch)


@pytest.mark.parametrize("shard", [0, 1, 2])
def test_an_upload_whose_shards_are_damaged_begins_anew(tmp_path: Path, shard: int) -> None:
    batch, where = anchors(), store(tmp_path)
    with where.upload(header()) as upload:
        for start in (0, 4, 8):
            upload.append(batch.part(start, min(start + 4, COUNT)))
    (folder,) = (tmp_path / "anchors/uploads").iterdir()
    path = folder / f"set/{4 * shard:08d}.npz"
    path.write_bytes(path.read_bytes()[:-100])
    assert where.progress("mine")[0] == (COUNT if shard == 1 else 0)
    if shard == 1:
        with pytest.raises(FailedPrecondition), where.upload(header()) as upload:
            upload.finish()
    assert put(where, batch, header()).digest == digest_of(batch)


def test_arrays_that_a_score_must_hold_are_bounded(tmp_path: Path) -> None:
    shard = anchors(1, endpoint_states=np.zeros((1, 2**20)))
    with store(tmp_path, store_bytes=2**30).upload(header(anchors=50)) as upload:
        with pytest.raises(ResourceExhausted, match="bytes of actions and states") as caught:
            upload.append(shard)
        assert caught.value.reason == "ANCHOR_SET_TOO_LARGE"


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
            np.testing.assert_array_equal(array, batch.small[kind])
    assert refused > 5
    where.delete(digest, unused)


@pytest.mark.parametrize("name", ["starts", "labels", "action_blocks", "anchor_ids"])
@pytest.mark.parametrize("change", ["rank", "length", "type"])
def test_arrays_of_another_form_are_damage(tmp_path: Path, name: str, change: str) -> None:
    where = store(tmp_path)
    digest = put(where, anchors(), header()).digest
    path = tmp_path / "anchors/sets" / digest / "anchors.npz"
    with np.load(path) as members:
        arrays = dict(members)
    array = arrays[name]
    forged = {"rank": array.reshape(-1)[0], "length": array[:-1], "type": array.astype(">f2")}
    np.savez(path, **{**arrays, name: forged[change]})
    with pytest.raises(FailedPrecondition, match=r"anchors\.npz is gone or damaged") as caught:
        where.open(digest)
    assert caught.value.reason == "ANCHOR_SET_DAMAGED"


@pytest.mark.parametrize("name", ["views/night", "proprio"])
def test_a_damaged_extra_array_gives_no_numbers(tmp_path: Path, name: str) -> None:
    where = store(tmp_path)
    info = put(where, anchors(extras=EXTRAS), header(), cut=4)
    path = tmp_path / "anchors/sets" / info.digest / "00000004.npz"
    with np.load(path) as members:
        arrays = dict(members)
    arrays[f"{name}.values"] = arrays[f"{name}.values"].copy()
    arrays[f"{name}.values"][0] ^= 1
    arrays[f"{name}.digests"] = np.frombuffer(  # a forger mends these, but not the set's
        b"".join(frame_digests(arrays[f"{name}.values"].reshape(4, -1))), np.uint8
    )
    np.savez(path, **arrays)
    stored = where.open(info.digest)
    stored.read_frames(0, COUNT)
    stored.read(name, 0, 4)
    with pytest.raises(FailedPrecondition, match=f"the {name} do not have their sha256"):
        stored.read(name, 3, 5)


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
            upload.append(anchors().part(0, 3))
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


@contextmanager
def largest_file(size: int) -> Iterator[None]:
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

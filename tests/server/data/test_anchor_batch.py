"""What a batch of anchors must hold together, its digest, and the arrays beside it."""

import dataclasses
import hashlib
from pathlib import Path

import numpy as np
import pytest
from acpc.contract import frame_digests
from acpc_server.data import AnchorBatch
from acpc_server.errors import FailedPrecondition
from anchor_batches import COUNT, HISTORY, HORIZON, anchors, header, part, put, store


def arrays() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(1)
    return {
        "frames": generator.integers(0, 256, (4, 5, 6, 7, 3), dtype=np.uint8),
        "action_blocks": generator.normal(size=(4, 4, 10)).astype(np.float32),
        "endpoint_states": generator.normal(size=(4, 2)),
        "labels": np.array([0, 1, 1, 0]),
        "anchor_ids": np.array([7, 3, 0, 2**62]),
        "trajectory_ids": np.array([2, 2, 9, 5]),
    }


def test_digest_is_sha256_over_names_dtypes_shapes_and_bytes() -> None:
    batch = AnchorBatch(history=2, **arrays())
    digest = hashlib.sha256(b"acpc/anchors/2 history=2\nframes |u1 (4, 5, 6, 7, 3)\n")
    for anchor in arrays()["frames"]:
        digest.update(hashlib.sha256(anchor.tobytes()).digest())
    for name, kind in (
        ("action_blocks", "<f4 (4, 4, 10)"),
        ("endpoint_states", "<f8 (4, 2)"),
        ("labels", "<i8 (4,)"),
        ("anchor_ids", "<i8 (4,)"),
        ("trajectory_ids", "<i8 (4,)"),
    ):
        digest.update(f"\n{name} {kind}\n".encode() + arrays()[name].tobytes())
    assert batch.digest == digest.hexdigest()
    assert (batch.count, batch.horizon, batch.frame_size) == (4, 3, (6, 7))
    np.testing.assert_array_equal(batch.read_frames(1, 3), arrays()["frames"][1:3])


@pytest.mark.parametrize("name", ["history", *arrays()])
def test_any_change_changes_the_digest(name: str) -> None:
    batch = AnchorBatch(history=2, **arrays())
    value = 3 if name == "history" else arrays()[name].copy()
    if isinstance(value, np.ndarray):
        value.flat[3] = 1 if name != "labels" else 5
    assert dataclasses.replace(batch, **{name: value}).digest != batch.digest


RNG = np.random.default_rng(5)
NIGHT = RNG.integers(0, 256, (COUNT, 4, HISTORY, 12, 9, 3), np.uint8)
NOON = RNG.integers(0, 256, (COUNT, 1, HISTORY, 12, 9, 3), np.uint8)
PROPRIO = RNG.standard_normal((COUNT, HISTORY + HORIZON, 6), np.float32)
LIGHT = RNG.standard_normal((COUNT, 2, HISTORY, 12, 9, 3), np.float32)
STILL = np.ones((COUNT, 2, 1, 1, 1, 1), np.float32)
STILL[3, 1] = 0
ARRAYS = {
    "views/night": NIGHT,
    "views/light:0.5": NOON,
    "proprio": PROPRIO,
    "directions/light": LIGHT,
}


def with_arrays(**changed: object) -> AnchorBatch:
    return anchors(arrays={**ARRAYS, **changed})


@pytest.mark.parametrize(("cut", "packed"), [(1, True), (4, False), (COUNT, True)])
def test_extra_arrays_read_as_they_came(tmp_path: Path, cut: int, packed: bool) -> None:
    batch, where = with_arrays(), store(tmp_path)
    info = put(where, batch, header(), cut, packed)
    stored = where.open(info.digest)
    assert info.digest == stored.digest == batch.digest
    assert {x.name: (x.dtype, x.shape) for x in stored.extras} == {
        name: (array.dtype.name, array.shape[1:]) for name, array in ARRAYS.items()
    }
    assert stored.extras == batch.extras == info.extras
    for name, array in ARRAYS.items():
        for start, stop in ((0, COUNT), (3, 9), (7, 8), (10, 11), (5, 5)):
            found = stored.read(name, start, stop)
            assert found.dtype == array.dtype
            np.testing.assert_array_equal(found, array[start:stop])
    np.testing.assert_array_equal(stored.read_frames(2, 5), batch.frames[2:5])
    listed = where.described(where.get(info.digest)).to_message()
    assert [x.name for x in listed.extras] == sorted(ARRAYS)
    assert where.described(where.get(info.digest)).groups == {"light:0.5": 1, "night": 4}


def test_the_digest_covers_every_extra_array_and_is_the_old_one_without(tmp_path: Path) -> None:
    where = store(tmp_path)
    plain = put(where, anchors(), header("plain"))
    found = {plain.digest, put(where, with_arrays(), header("all")).digest}
    other = NIGHT.copy()
    other[-1, -1, -1, -1, -1, -1] ^= 1
    found.add(put(where, with_arrays(**{"views/night": other}), header("pixel")).digest)
    named = {"views/dusk": NIGHT, "views/light:0.5": NOON, "proprio": PROPRIO}
    found.add(put(where, anchors(arrays=named), header("name")).digest)
    assert len(found) == 4
    assert plain.extras == ()


@pytest.mark.parametrize("name", ["views/night", "proprio"])
def test_a_damaged_extra_array_gives_no_numbers(tmp_path: Path, name: str) -> None:
    where = store(tmp_path)
    info = put(where, with_arrays(), header(), cut=4)
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


def test_fewer_anchors_and_shorter_ones_have_the_extra_arrays_too(tmp_path: Path) -> None:
    batch = with_arrays()
    few = put(store(tmp_path), batch, header()).digest
    first = store(tmp_path).open(few).first(4)
    assert first.extras == part(batch, 0, 4).extras
    assert first.digest == part(batch, 0, 4).digest
    rng = np.random.default_rng(0)
    states = rng.standard_normal((COUNT, HORIZON, 2))
    long = anchors(
        arrays=ARRAYS, endpoint_states=states, labels=rng.integers(0, 2, (COUNT, HORIZON))
    )
    short = long.at_horizon(HORIZON - 1)
    np.testing.assert_array_equal(short.read("proprio", 0, 3), PROPRIO[:3, :-1])
    np.testing.assert_array_equal(short.read("views/night", 0, 3), NIGHT[:3])
    cut = anchors(
        arrays={**ARRAYS, "proprio": np.ascontiguousarray(PROPRIO[:, :-1])},
        frames=np.ascontiguousarray(long.frames[:, :-1]),
        action_blocks=long.action_blocks[:, :-1],
        endpoint_states=np.ascontiguousarray(states[:, -2]),
        labels=np.ascontiguousarray(long.labels[:, -2]),
    )
    assert short.digest == cut.digest

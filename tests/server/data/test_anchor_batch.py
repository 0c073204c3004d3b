"""The digest of a batch of anchors, and of the arrays beside it."""

import dataclasses
import hashlib

import numpy as np
import pytest
from acpc_server.data import AnchorBatch
from anchor_batches import EXTRAS, anchors


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


def test_the_digest_covers_every_extra_array() -> None:
    night = EXTRAS["views/night"].copy()
    night.flat[-1] ^= 1
    renamed = {"views/dusk" if name == "views/night" else name: x for name, x in EXTRAS.items()}
    changed = ({}, EXTRAS, {**EXTRAS, "views/night": night}, renamed)
    assert len({anchors(arrays=arrays).digest for arrays in changed}) == 4

"""The digest of a batch of anchors, and of the arrays beside it."""

import dataclasses

import anchor_wire
import numpy as np
import pytest
from acpc_server.data import AnchorBatch
from anchor_batches import EXTRAS, anchors

ARRAYS = anchor_wire.anchor_arrays(4, seed=1, size=(6, 8))
BATCH = AnchorBatch(history=2, **ARRAYS)


def test_digest_is_sha256_over_names_dtypes_shapes_and_bytes() -> None:
    assert BATCH.digest == anchor_wire.digest(ARRAYS, history=2)
    assert (BATCH.count, BATCH.horizon, BATCH.frame_size) == (4, 3, (6, 8))
    np.testing.assert_array_equal(BATCH.read_frames(1, 3), ARRAYS["frames"][1:3])


@pytest.mark.parametrize("name", ["history", *ARRAYS])
def test_any_change_changes_the_digest(name: str) -> None:
    value = 3 if name == "history" else ARRAYS[name].copy()
    if isinstance(value, np.ndarray):
        value.flat[3] = 9
    assert dataclasses.replace(BATCH, **{name: value}).digest != BATCH.digest


def test_the_digest_covers_every_extra_array() -> None:
    night = EXTRAS["views/night"].copy()
    night.flat[-1] ^= 1
    renamed = {"views/dusk" if name == "views/night" else name: x for name, x in EXTRAS.items()}
    changed = ({}, EXTRAS, {**EXTRAS, "views/night": night}, renamed)
    assert len({anchors(arrays=arrays).digest for arrays in changed}) == 4

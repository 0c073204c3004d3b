"""The demonstration's file has the public layout and follows from its seed."""

from pathlib import Path

import h5py
import numpy as np
import pytest
from dataset import columns, write_dataset
from world import render

EPISODES, BLOCKS = 3, 4
ROWS = EPISODES * BLOCKS * 5


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "nested" / "two-room.h5"
    write_dataset(path, episodes=EPISODES, blocks=BLOCKS, seed=8)
    return path


def test_columns_have_the_public_names_types_and_shapes(written: Path) -> None:
    with h5py.File(written) as file:
        found = {name: (column.shape, column.dtype) for name, column in file.items()}
        assert len(file.attrs) == 0
    assert found == {
        "pixels": ((ROWS, 32, 32, 3), np.uint8),
        "action": ((ROWS, 2), np.float32),
        "pos_agent": ((ROWS, 2), np.float32),
        "ep_len": ((EPISODES,), np.int32),
        "ep_offset": ((EPISODES,), np.int64),
    }


def test_pixels_show_the_logged_positions(written: Path) -> None:
    with h5py.File(written) as file:
        pixels, positions = file["pixels"][:], file["pos_agent"][:]
    redrawn = render(positions.astype(np.float64))
    # Positions are stored in float32, so a shade on the edge of rounding may move by one.
    assert np.abs(pixels.astype(int) - redrawn.astype(int)).max() <= 1


def test_same_seed_same_bytes_other_seed_others() -> None:
    first, again, other = (columns(EPISODES, BLOCKS, seed) for seed in (8, 8, 9))
    assert {k: v.tobytes() for k, v in first.items()} == {k: v.tobytes() for k, v in again.items()}
    assert first["pixels"].tobytes() != other["pixels"].tobytes()

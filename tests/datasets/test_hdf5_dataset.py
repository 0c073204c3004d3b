"""Reading sound files: layouts, compressions and the gathering of rows."""

from pathlib import Path

import h5py
import numpy as np
import pytest
from acpc.datasets.hdf5 import Hdf5Dataset
from public_dataset import EPISODES, public_columns, write_public_dataset

pytestmark = pytest.mark.edge


@pytest.fixture(params=[(False, 1), (True, 1), (True, 16), (False, 1000)], ids=str)
def layout(request: pytest.FixtureRequest) -> tuple[bool, int]:
    return request.param


def test_columns_and_episodes_are_read_as_written(tmp_path: Path, layout: tuple[bool, int]) -> None:
    content = public_columns()
    write_public_dataset(tmp_path / "a.h5", content, compress=layout[0], rows_per_chunk=layout[1])
    with Hdf5Dataset.open(tmp_path / "a.h5", "a.h5") as dataset:
        np.testing.assert_array_equal(dataset.lengths, EPISODES)
        np.testing.assert_array_equal(dataset.offsets, np.cumsum((0, *EPISODES[:-1])))
        assert dataset.lengths.dtype == dataset.offsets.dtype == np.int64
        pixels = dataset.pixel_column("pixels")
        action = dataset.numeric_column("action")
        np.testing.assert_array_equal(pixels.read(3, 9), content.columns["pixels"][3:9])
        np.testing.assert_array_equal(
            np.concatenate(list(action.blocks())), content.columns["action"]
        )


def test_gather_keeps_order_and_repeats(tmp_path: Path, layout: tuple[bool, int]) -> None:
    content = public_columns()
    write_public_dataset(tmp_path / "a.h5", content, compress=layout[0], rows_per_chunk=layout[1])
    rows = np.array([[170, 3, 3], [0, 176, 40], [2, 41, 39]])
    with Hdf5Dataset.open(tmp_path / "a.h5", "a.h5") as dataset:
        found = dataset.pixel_column("pixels").gather(rows)
        assert dataset.pixel_column("pixels").gather(rows[:0]).shape == (0, 3, 12, 12, 3)
    expected = np.stack([[content.columns["pixels"][row] for row in line] for line in rows])
    np.testing.assert_array_equal(found, expected)


def test_rows_of_a_megabyte_are_read_some_at_a_time(tmp_path: Path) -> None:
    rows = np.arange(34)[::-1]
    wanted = np.broadcast_to(rows.astype(np.uint8)[:, None, None, None], (34, 600, 600, 3))
    changed = {"pixels": wanted}
    write_public_dataset(tmp_path / "a.h5", public_columns((34,)), compress=True, override=changed)
    with Hdf5Dataset.open(tmp_path / "a.h5", "a.h5") as dataset:
        pixels = dataset.pixel_column("pixels")
        blocks = [*pixels.blocks()]
        assert max(block.nbytes for block in blocks) <= 2**25
        np.testing.assert_array_equal(np.concatenate(blocks), wanted)
        np.testing.assert_array_equal(pixels.gather(rows), wanted[rows])


def test_contiguous_storage_and_one_axis_columns_are_read(tmp_path: Path) -> None:
    content = public_columns((4, 6))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name, array in content.columns.items():
            file[name] = array
        file["reward"] = np.arange(10, dtype=np.int16)
        file["ep_len"], file["ep_offset"] = content.lengths, content.offsets
    with Hdf5Dataset.open(tmp_path / "a.h5", "a.h5") as dataset:
        reward = dataset.numeric_column("reward")
        assert reward.width == 1
        np.testing.assert_array_equal(reward.gather(np.array([7, 2])), [7, 2])


def test_rows_beyond_the_last_episode_and_gaps_are_allowed(tmp_path: Path) -> None:
    """An interrupted writer leaves rows that no episode claims."""
    write_public_dataset(
        tmp_path / "a.h5",
        public_columns((5, 5, 5)),
        override={"ep_len": np.array([4, 0, 3], np.int32), "ep_offset": np.array([8, 2, 1])},
    )
    with Hdf5Dataset.open(tmp_path / "a.h5", "a.h5") as dataset:
        assert dataset.numeric_column("action").shape == (15, 2)

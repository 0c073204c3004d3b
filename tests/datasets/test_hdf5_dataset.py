"""Reading sound files: layouts, compressions and the gathering of rows."""

from pathlib import Path

import h5py
import numpy as np
import pytest
from acpc.datasets.hdf5 import Hdf5Column, Hdf5Dataset
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


class CountingColumn(Hdf5Column):
    """A column that keeps account of what it reads."""

    def read(self, start: int, stop: int) -> np.ndarray:
        self.reads = [*getattr(self, "reads", []), (start, stop)]
        return super().read(start, stop)


def test_gather_reads_every_chunk_once(tmp_path: Path) -> None:
    path = write_public_dataset(tmp_path / "a.h5", public_columns(), rows_per_chunk=16)
    with h5py.File(path) as file:
        column = CountingColumn(file["pixels"], "a.h5", "pixels")
        column.gather(np.array([33, 1, 47, 32, 15, 1, 100]))
    assert column.reads == [(1, 16), (32, 48), (100, 101)]


def test_gather_reads_neighbouring_chunks_together_some_megabytes_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_public_dataset(tmp_path / "a.h5", public_columns())
    rows = np.array([5, 6, 7, 8, 9, 10, 20, 21, 23])
    monkeypatch.setattr("acpc.datasets.hdf5._READ_BYTES", 4 * 8)
    with h5py.File(path) as file:
        column = CountingColumn(file["action"], "a.h5", "action")  # 8 bytes a row
        np.testing.assert_array_equal(column.gather(rows[::-1]), file["action"][rows][::-1])
    assert column.reads == [(5, 8), (8, 11), (20, 22), (23, 24)]


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


def test_a_file_in_a_folder_below_the_root(tmp_path: Path) -> None:
    (tmp_path / "ogbench").mkdir()
    write_public_dataset(tmp_path / "ogbench" / "cube.h5", public_columns((3,)))
    with Hdf5Dataset.open(tmp_path / "ogbench/cube.h5", "ogbench/cube.h5") as dataset:
        assert dataset.name == "ogbench/cube.h5"

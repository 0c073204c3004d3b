"""Statistics and action blocks against loops over single numbers."""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from acpc.contract import InvalidArgument
from acpc.datasets import ColumnStatistics, Normaliser, action_blocks, column_statistics
from acpc.datasets.columns import DatasetColumn
from acpc.datasets.hdf5 import Hdf5Dataset
from public_dataset import public_columns, write_public_dataset


def statistics_of(root: Path, values: np.ndarray, ddof: int = 1) -> ColumnStatistics:
    lengths = (len(values),)
    content = public_columns(lengths, side=1)
    write_public_dataset(root / "a.h5", content, override={"pos_agent": values}, rows_per_chunk=64)
    with Hdf5Dataset.open(root / "a.h5", "a.h5") as dataset:
        return column_statistics(dataset, dataset.numeric_column("pos_agent"), ddof=ddof)


def by_loops(values: np.ndarray, ddof: int) -> tuple[list[float], list[float]]:
    rows = [row for row in values.tolist() if not any(math.isnan(number) for number in row)]
    means, stds = [], []
    for coordinate in zip(*rows, strict=True):
        mean = math.fsum(coordinate) / len(rows)
        means.append(mean)
        total = math.fsum((number - mean) ** 2 for number in coordinate)
        stds.append(math.sqrt(total / (len(rows) - ddof)))
    return means, stds


@pytest.mark.parametrize("ddof", [0, 1])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int16])
def test_statistics_match_a_loop(tmp_path: Path, ddof: int, dtype: type) -> None:
    generator = np.random.default_rng(3)
    values = generator.normal([1e4, 0, -5], 300, (500, 3)).astype(dtype)
    if dtype is not np.int16:
        values[7, 0] = values[20:30, 2] = np.nan  # the whole row goes
    found = statistics_of(tmp_path, values, ddof)
    mean, std = by_loops(values.astype(np.float64), ddof)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-13)
    np.testing.assert_allclose(found.std, std, rtol=1e-13)
    assert found.rows == (500 if dtype is np.int16 else 489)


class InBlocks(DatasetColumn):
    """A column of any format that is read twenty rows at a time."""

    name = "pos_agent"

    def __init__(self, values: np.ndarray) -> None:
        self.values, self.shape = values, values.shape

    def blocks(self) -> Iterator[np.ndarray]:
        yield from np.split(self.values, range(20, len(self.values), 20))

    def gather(self, rows: np.ndarray) -> np.ndarray:
        return self.values[rows]


def test_merging_blocks_gives_the_statistics_of_the_whole(tmp_path: Path) -> None:
    values = np.random.default_rng(4).normal(1e6, 1.0, (997, 2))
    values[0:40] = np.nan  # a whole block without a row
    write_public_dataset(tmp_path / "a.h5", public_columns((997,), side=1))
    with Hdf5Dataset.open(tmp_path / "a.h5", "a.h5") as dataset:
        found = column_statistics(dataset, InBlocks(values), ddof=1)
    mean, std = by_loops(values, 1)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-14)
    np.testing.assert_allclose(found.std, std, rtol=1e-9)


def test_a_constant_coordinate_becomes_exactly_zero(tmp_path: Path) -> None:
    values = np.random.default_rng(5).normal(size=(1000, 2))
    values[:, 1] = 0.1  # its mean is not 0.1 in floating point
    found = statistics_of(tmp_path, values)
    assert found.std[1] == 0.0
    standardised = found.standardise(values)
    assert (standardised[:, 1] == 0.0).all()
    assert abs(standardised[:, 0].std(ddof=1) - 1) < 1e-12


def test_blocks_need_whole_frameskips() -> None:
    statistics = ColumnStatistics(np.zeros(2), np.ones(2), 9)
    with pytest.raises(InvalidArgument, match="frameskip: is 5, which does not divide 12 actions"):
        action_blocks(np.zeros((1, 12, 2)), Normaliser(statistics), frameskip=5)

"""Episodes that anchors are drawn from, and episodes that rows name one by one."""

from pathlib import Path

import h5py
import numpy as np
import pytest
from acpc.contract import AnchorSource, ArgumentError, FailedPrecondition
from acpc.datasets import chosen_episodes, draw_windows, load_preset, parse_task
from acpc.datasets.hdf5 import Hdf5Dataset
from public_dataset import EPISODES, public_columns, write_public_dataset

CONTENT = public_columns()
EPISODE = np.repeat(np.arange(len(EPISODES)), EPISODES)
STEP = np.concatenate([np.arange(length) for length in EPISODES])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_public_dataset(tmp_path / "a.h5", CONTENT)
    with h5py.File(tmp_path / "a.h5", "a") as file:
        file["split"] = (EPISODE % 3).astype(np.float32)
    return tmp_path / "a.h5"


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("", range(8)), ("3", [3]), ("1-3,6", [1, 2, 3, 6]), ("split=2", [2, 5]),
        ("split=1.0", [1, 4, 7]),
    ],
)  # fmt: skip
def test_episodes_are_those_named(path: Path, words: str, wanted: list[int]) -> None:
    with Hdf5Dataset.open(path, "a.h5") as dataset:
        assert np.flatnonzero(chosen_episodes(dataset, words)).tolist() == [*wanted]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("8", "episodes 0 to 7"), ("5-2", "episodes 0 to 7"), ("1;2", "wanted like 400-499"),
        ("-3", "wanted like"), ("split=7", "names no episode"), ("split=e", "wanted"),
        ("action=1", "has 2 numbers in a row"), (",", "wanted like"),
    ],
)  # fmt: skip
def test_words_that_name_none_are_refused(path: Path, words: str, problem: str) -> None:
    with Hdf5Dataset.open(path, "a.h5") as dataset, pytest.raises(ArgumentError, match=problem):
        chosen_episodes(dataset, words)
    with (
        Hdf5Dataset.open(path, "a.h5") as dataset,
        pytest.raises(FailedPrecondition, match="does not exist"),
    ):
        chosen_episodes(dataset, "nothing=1")


@pytest.mark.parametrize("where", ["task", "request", "both"])
def test_windows_come_from_these_episodes_alone(path: Path, where: str) -> None:
    """What the request says goes before the task file."""
    usual = load_preset("tworoom").model_dump()
    listed = {"request": "''", "task": "[4, 6]", "both": "'1'"}[where]
    text = f"name: t\nstate: pos_agent\nlabels: {usual['labels']}\nepisodes: {listed}\n"
    source = AnchorSource(
        "a.h5", "t", count=20, frameskip=3, episodes="" if where == "task" else "4,6"
    )
    task = parse_task("t.yaml", text.encode())
    with Hdf5Dataset.open(path, "a.h5") as dataset:
        found = draw_windows(dataset, task, source, history=2, horizon=3)
    trajectories = found.anchors.trajectory_ids
    assert set(trajectories.tolist()) == {4, 6}
    span = 15
    assert found.windows == (EPISODES[4] - span + 1) + (EPISODES[6] - span + 1)
    starts = found.frames.rows[:, 0] - np.cumsum((0, *EPISODES))[trajectories]
    assert (starts >= 0).all() and (starts + span <= np.array(EPISODES)[trajectories]).all()


def write_rows(path: Path, episode: np.ndarray, step: np.ndarray | None, name: str) -> None:
    with h5py.File(path, "w") as file:
        for column, values in CONTENT.columns.items():
            file[column] = values
        file[name] = episode
        if step is not None:
            file["step_idx"] = step


@pytest.mark.parametrize("name", ["ep_idx", "episode_idx"])
@pytest.mark.parametrize("steps", [True, False])
def test_rows_that_name_their_episode_are_as_good_as_an_index(
    tmp_path: Path, name: str, steps: bool
) -> None:
    """Numbers need not be in order, nor begin at 0."""
    numbers = np.array([7, 3, 4, 90, 1, 0, 2, 5])[EPISODE]
    write_rows(tmp_path / "a.h5", numbers[:, None], STEP if steps else None, name)
    with Hdf5Dataset.open(tmp_path / "a.h5", "a.h5") as dataset:
        assert dataset.lengths.tolist() == list(EPISODES)
        assert dataset.offsets.tolist() == CONTENT.offsets.tolist()
        assert name not in dataset.column_names() and "step_idx" not in dataset.column_names()


@pytest.mark.parametrize(
    ("episode", "step", "problem"),
    [
        (np.where(EPISODE == 5, 2, EPISODE), STEP, "has episode 2 again at row 103; sort the rows"),
        (EPISODE, np.roll(STEP, 1), "does not count the steps of episodes from 0 at row 0"),
        (EPISODE, STEP[:-1], "does not count the steps of episodes from 0 at row 176"),
        (EPISODE.astype(float), STEP, "must hold a whole number a row; is float64"),
        (np.stack([EPISODE, EPISODE], axis=1), STEP, "must hold a whole number a row"),
        (EPISODE[:0], STEP, "must hold a whole number a row"),
    ],
)
def test_rows_out_of_order_are_refused(
    tmp_path: Path, episode: np.ndarray, step: np.ndarray, problem: str
) -> None:
    write_rows(tmp_path / "a.h5", episode, step, "ep_idx")
    with (
        pytest.raises(FailedPrecondition, match=problem),
        Hdf5Dataset.open(tmp_path / "a.h5", "a.h5"),
    ):
        pass

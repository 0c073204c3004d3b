"""Normalisers of a task file: the public library's formulas, fixed statistics, and refusals."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from acpc.contract import AnchorSource, FailedPrecondition
from acpc.datasets import TaskPreset, action_variants, draw_windows, parse_task
from acpc.datasets.hdf5 import Hdf5Dataset
from acpc.datasets.normalisers import StatisticsCache
from public_dataset import EPISODES, public_columns, write_public_dataset

HISTORY, HORIZON, SKIP, COUNT = 2, 3, 3, 20
CONTENT = public_columns()
ACTIONS = CONTENT.columns["action"].astype(np.float64)
HELD = ACTIONS[~np.isnan(ACTIONS).any(axis=1)]


def task(action: str = "action", more: str = "") -> TaskPreset:
    text = f"name: t\nstate: pos_agent\nframeskip: {SKIP}\naction: {action}\n{more}"
    return parse_task("t.yaml", f"{text}labels: [{{rule: coordinates, of: [0]}}]\n".encode())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_public_dataset(tmp_path / "a.h5", CONTENT)
    return tmp_path / "a.h5"


def drawn(path: Path, chosen: TaskPreset, **asked: Any) -> Any:
    source = AnchorSource("a.h5", "t.yaml", count=asked.pop("count", COUNT), **asked)
    with Hdf5Dataset.open(path, "a.h5") as dataset:
        return draw_windows(dataset, chosen, source, history=HISTORY, horizon=HORIZON)


def percentile(low: Any, high: Any, clip: float | None) -> Any:
    def apply(x: np.ndarray) -> np.ndarray:
        scaled = 2 * (x - low) / (np.asarray(high) - low) - 1
        return scaled if clip is None else np.clip(scaled, -clip, clip)

    return apply


LOW, HIGH = np.percentile(HELD, [1, 99], axis=0)


@pytest.mark.parametrize(
    ("words", "formula"),
    [
        ("action", lambda x: (x - HELD.mean(0)) / HELD.std(0, ddof=1)),
        ("{normaliser: zscore, clip: 1.5}",
         lambda x: np.clip((x - HELD.mean(0)) / HELD.std(0, ddof=1), -1.5, 1.5)),
        ("{normaliser: zscore, mean: [0.1, -0.2], std: [0.5, 2]}",
         lambda x: (x - [0.1, -0.2]) / [0.5, 2]),
        ("{normaliser: percentile}", percentile(LOW, HIGH, 1)),
        ("{normaliser: percentile, low: [-1], high: [0.5], clip: 9}", percentile(-1, 0.5, 9)),
        ("{normaliser: constant, low: [-2, -1], high: [2, 4]}", percentile([-2, -1], [2, 4], None)),
        ("{normaliser: constant, mean: [3], std: [0]}", lambda x: x - 3),
        ("{column: action, normaliser: none}", lambda x: x),
    ],
)  # fmt: skip
def test_blocks_are_normalised_as_the_task_says(path: Path, words: str, formula: Any) -> None:
    found, usual = drawn(path, task(words)), drawn(path, task())
    assert found.anchors.anchor_ids.tolist() == usual.anchors.anchor_ids.tolist()
    wanted = []
    for rows in found.frames.rows:
        actions = formula(ACTIONS[rows[0] : rows[0] + SKIP * (HISTORY + HORIZON - 1)])
        wanted.append(np.nan_to_num(actions).reshape(HISTORY + HORIZON - 1, -1))
    np.testing.assert_allclose(found.anchors.action_blocks, np.stack(wanted), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("{normaliser: minmax}", "key 'action.normaliser': Input should be"),
        ("{normalizer: none}", "unknown key 'action.normalizer'; .*did you mean 'normaliser'"),
        ("{mean: [1]}", "'mean' and 'std' go together"),
        ("{normaliser: percentile, low: [1]}", "'low' and 'high' go together"),
        ("{normaliser: percentile, mean: [1], std: [1]}", "percentile takes no 'mean'"),
        ("{normaliser: none, low: [1], high: [2]}", "none takes no 'low'"),
        ("{normaliser: constant}", "constant needs"),
        ("{normaliser: constant, mean: [1], std: [1], low: [1], high: [2]}", "or 'low' and 'high'"),
        ("{mean: [1], std: [-1]}", "a 'std' is negative"),
        ("{clip: 0}", "key 'action.clip'"),
        ("{mean: [.nan], std: [1]}", "key 'action.mean.0'"),
    ],
)
def test_a_normaliser_that_makes_no_sense_is_named(words: str, problem: str) -> None:
    with pytest.raises(FailedPrecondition, match=problem):
        task(words)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("{mean: [1, 2, 3], std: [1]}", "3 numbers are given, but it has 2 coordinates"),
        ("{normaliser: constant, low: [2], high: [1]}", "a 'low' is not below its 'high'"),
    ],
)
def test_numbers_that_do_not_fit_the_column_are_refused(
    path: Path, words: str, problem: str
) -> None:
    with pytest.raises(FailedPrecondition, match=problem):
        drawn(path, task(words))


def test_variants_are_the_rows_beside_within_the_episode(path: Path) -> None:
    chosen, known = task("{normaliser: none}"), StatisticsCache()
    with Hdf5Dataset.open(path, "a.h5") as dataset:
        for episode, start in ((4, 0), (4, 7), (6, EPISODES[6] - 6)):
            first = int(dataset.offsets[episode]) + start
            found = action_variants(
                dataset, chosen, np.array([episode]), np.array([first]),
                blocks=2, frameskip=SKIP, known=known,
            )  # fmt: skip
            end = int(dataset.offsets[episode] + dataset.lengths[episode])
            for name, shift in (("own", 0), ("later_actions", 1), ("earlier_actions", -1)):
                rows = np.arange(first + shift, first + shift + 2 * SKIP)
                held = (rows >= dataset.offsets[episode]) & (rows < end)
                wanted = np.where(held[:, None], ACTIONS[np.clip(rows, 0, end - 1)], 0.0)
                got = found[name].reshape(-1, 2)
                np.testing.assert_allclose(got, np.nan_to_num(wanted), rtol=1e-6)
            assert set(found) == {
                "own", "later_actions", "earlier_actions", "zscore_actions", "percentile_actions",
            }  # fmt: skip

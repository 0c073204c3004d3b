"""Anchors of a real file against loops over the arrays it was written from."""

import math
import statistics
from pathlib import Path

import numpy as np
import pytest
import torch
from acpc.contract import AnchorSource, Reading
from acpc_server.data import AnchorBatch, load_task, open_dataset
from acpc_server.errors import InvalidArgument
from anchor_batches import drawn_anchors
from public_dataset import EPISODES, PublicColumns, public_columns, write_public_dataset

HISTORY, HORIZON, COUNT = 2, 3, 25


def select(root: Path, task: str = "tworoom", **arguments: object) -> AnchorBatch:
    window = {"history": HISTORY, "horizon": HORIZON}
    window = {name: arguments.pop(name, value) for name, value in window.items()}
    source = AnchorSource(
        **{"dataset": "a.h5", "task": task, "count": COUNT, "frameskip": 3, **arguments}
    )
    with open_dataset(root, "a.h5") as dataset:
        return drawn_anchors(dataset, load_task(task, root), source, **window)


def standardised(values: np.ndarray, row: int, ddof: int = 1) -> list[float]:
    rows = [line for line in values.astype(float).tolist() if not any(map(math.isnan, line))]
    out = []
    for coordinate, number in enumerate(values[row].astype(float).tolist()):
        column = [line[coordinate] for line in rows]
        mean = math.fsum(column) / len(column)
        total = math.fsum((x - mean) ** 2 for x in column)
        std = math.sqrt(total / (len(column) - ddof))
        out.append(0.0 if math.isnan(number) else (number - mean) / std)
    return out


def listed_windows(span: int) -> list[tuple[int, int]]:
    return [
        (episode, start)
        for episode, length in enumerate(EPISODES)
        for start in range(length)
        if start + span <= length
    ]


@pytest.fixture(params=[(False, 1), (True, 1), (True, 10)], ids=str)
def content(request: pytest.FixtureRequest, tmp_path: Path) -> PublicColumns:
    compress, rows = request.param
    written = public_columns()
    write_public_dataset(tmp_path / "a.h5", written, compress=compress, rows_per_chunk=rows)
    return written


def test_everything_matches_loops_over_the_columns(tmp_path: Path, content: PublicColumns) -> None:
    batch = select(tmp_path)
    windows = listed_windows((HISTORY + HORIZON) * 3)
    generator = torch.Generator().manual_seed(9101)
    chosen = torch.randperm(len(windows), generator=generator)[:COUNT].tolist()
    assert batch.anchor_ids.tolist() == chosen
    for anchor, window in enumerate(chosen):
        episode, start = windows[window]
        assert batch.trajectory_ids[anchor] == episode
        first = int(content.offsets[episode]) + start
        for frame in range(HISTORY + HORIZON):
            expected = content.columns["pixels"][first + 3 * frame]
            np.testing.assert_array_equal(batch.frames[anchor, frame], expected)
        for block in range(HISTORY + HORIZON - 1):
            leaving = range(first + 3 * block, first + 3 * block + 3)
            actions = [standardised(content.columns["action"], row) for row in leaving]
            np.testing.assert_allclose(
                batch.action_blocks[anchor, block], np.concatenate(actions), rtol=1e-5, atol=1e-6
            )
        endpoint = first + 3 * (HISTORY + HORIZON - 1)  # the last future frame
        state = standardised(content.columns["pos_agent"], endpoint)
        np.testing.assert_allclose(batch.endpoint_states[anchor], state, rtol=1e-10)


@pytest.mark.parametrize("horizon", [3, 8, 10])
def test_longer_windows_draw_other_anchors_and_leave_the_endpoint(
    tmp_path: Path, horizon: int
) -> None:
    """The released code: windows of history + max(9, H + 1) frames, endpoint h + H - 1."""
    content = public_columns()
    write_public_dataset(tmp_path / "a.h5", content)
    asked = AnchorSource("a.h5", "tworoom").with_windows(Reading.RELEASED, horizon)
    future = max(9, horizon + 1)
    assert asked.window_future_frames == future
    drawn = {"horizon": horizon, "frameskip": 1, "count": 12}
    batch = select(tmp_path, window_future_frames=future, **drawn)
    windows = listed_windows(HISTORY + future)
    order = torch.randperm(len(windows), generator=torch.Generator().manual_seed(9101))
    assert batch.anchor_ids.tolist() == order[:12].tolist()
    assert batch.horizon == horizon
    for anchor, window in enumerate(batch.anchor_ids):
        episode, start = windows[window]
        endpoint = int(content.offsets[episode]) + start + HISTORY + horizon - 1
        np.testing.assert_array_equal(batch.frames[anchor, -1], content.columns["pixels"][endpoint])
        state = standardised(content.columns["pos_agent"], endpoint)
        np.testing.assert_allclose(batch.endpoint_states[anchor], state, rtol=1e-10)
    papers = select(tmp_path, **drawn)
    assert papers.anchor_ids.tolist() != batch.anchor_ids.tolist()
    assert select(tmp_path, window_future_frames=horizon, **drawn).digest == papers.digest


def test_labels_split_strictly_above_the_median(tmp_path: Path) -> None:
    content = public_columns(state="observation", state_dim=6)
    write_public_dataset(tmp_path / "a.h5", content)
    batch = select(tmp_path, "reacher", count=24)
    y = batch.endpoint_states.tolist()
    features = [[s[4] for s in y], [s[5] for s in y], [math.hypot(s[4], s[5]) for s in y]]
    medians = [statistics.median(feature) for feature in features]
    for anchor in range(24):
        bits = [features[f][anchor] > medians[f] for f in range(3)]
        assert batch.labels[anchor] == bits[0] + 2 * bits[1] + 4 * bits[2]
    assert len(set(batch.labels.tolist())) > 3


def test_the_kept_actions_hold_nan_only_where_the_file_does(tmp_path: Path) -> None:
    """The last action of an episode leaves no kept frame of any window, so no block is zeroed."""
    write_public_dataset(tmp_path / "a.h5", public_columns())
    assert (select(tmp_path, count=60).action_blocks != 0).all()
    action = public_columns().columns["action"].copy()
    action[::7] = np.nan
    write_public_dataset(tmp_path / "a.h5", public_columns(), override={"action": action})
    zeroed = select(tmp_path, count=60).action_blocks
    assert np.isfinite(zeroed).all()
    assert (zeroed == 0).any()


def test_one_per_episode_keeps_the_first_of_each_in_the_permutation(tmp_path: Path) -> None:
    write_public_dataset(tmp_path / "a.h5", public_columns())
    windows = listed_windows(15)
    order = torch.randperm(len(windows), generator=torch.Generator().manual_seed(9101)).tolist()
    expected, seen = [], set()
    for window in order:
        if windows[window][0] not in seen:
            seen.add(windows[window][0])
            expected.append(window)
    assert len(expected) == 5
    found = select(tmp_path, one_per_episode=True, count=5)
    assert found.anchor_ids.tolist() == expected
    words = r"count: is 6, .*only 5 episodes with a window of 15"
    with pytest.raises(InvalidArgument, match=words):
        select(tmp_path, one_per_episode=True, count=6)


def test_the_tasks_frameskip_and_ddof_apply(tmp_path: Path) -> None:
    content = public_columns(state="state")
    write_public_dataset(tmp_path / "a.h5", content)
    for name, ddof in (("paper", 1), ("current", 0)):
        (tmp_path / f"{name}.yaml").write_text(
            f"name: t\nstate: state\nframeskip: 2\naction_ddof: {ddof}\nstate_ddof: {ddof}\n"
            "labels: [{rule: norm, of: [0, 1]}]\n"
        )
    unbiased = select(tmp_path, "paper.yaml", frameskip=None)
    biased = select(tmp_path, "current.yaml", frameskip=None)
    assert unbiased.action_blocks.shape == (COUNT, HISTORY + HORIZON - 1, 4)
    states, actions = len(content.columns["state"]), len(content.columns["action"]) - len(EPISODES)
    np.testing.assert_allclose(
        biased.endpoint_states, unbiased.endpoint_states * math.sqrt(states / (states - 1))
    )
    np.testing.assert_allclose(
        biased.action_blocks,
        unbiased.action_blocks * math.sqrt(actions / (actions - 1)),
        rtol=1e-5,
        atol=1e-6,
    )


def test_too_few_windows_names_both_numbers(tmp_path: Path) -> None:
    write_public_dataset(tmp_path / "a.h5", public_columns())
    have = len(listed_windows(15))
    with pytest.raises(InvalidArgument, match=f"count: is 500, .*has only {have} windows of 15"):
        select(tmp_path, count=500)
    with pytest.raises(InvalidArgument, match="has only 0 windows of 1500"):
        select(tmp_path, frameskip=300)

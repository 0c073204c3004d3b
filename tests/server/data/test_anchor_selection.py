"""Anchors of a real file against loops over the arrays it was written from."""

import math
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from acpc.contract import AnchorArrays, AnchorSource, Reading, digest_of
from acpc_server.data import load_task, open_dataset
from acpc_server.errors import InvalidArgument
from anchor_batches import drawn_anchors
from public_dataset import EPISODES, public_columns, write_public_dataset

HISTORY, HORIZON, COUNT, SKIP = 2, 3, 25, 3
CURRENT = """
name: t
state: pos_agent
frameskip: 2
action_ddof: 0
state_ddof: 0
labels: [{rule: norm, of: [0, 1]}]
"""


def select(root: Path, task: str = "tworoom", **arguments: object) -> AnchorArrays:
    window = {"history": HISTORY, "horizon": arguments.pop("horizon", HORIZON)}
    source = AnchorSource(
        **{"dataset": "a.h5", "task": task, "count": COUNT, "frameskip": SKIP, **arguments}
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


def longer(horizon: int) -> dict[str, Any]:
    """The released code: windows of history + max(9, H + 1) frames, endpoint h + H - 1."""
    asked = AnchorSource("a.h5", "tworoom").with_windows(Reading.RELEASED, horizon)
    assert asked.window_future_frames == max(9, horizon + 1)
    return {"window_future_frames": asked.window_future_frames, "horizon": horizon,
            "frameskip": 1, "count": 12}  # fmt: skip


@pytest.mark.parametrize(
    ("layout", "asked"),
    [
        ({}, {}),
        ({"compress": True}, {}),
        ({"compress": True, "rows_per_chunk": 10}, {"task": "current.yaml", "frameskip": None}),
        *(({}, longer(horizon)) for horizon in (3, 8, 10)),
    ],
    ids=str,
)
def test_everything_matches_loops_over_the_columns(
    tmp_path: Path, layout: dict[str, Any], asked: dict[str, Any]
) -> None:
    content = public_columns()
    write_public_dataset(tmp_path / "a.h5", content, **layout)
    (tmp_path / "current.yaml").write_text(CURRENT)
    batch = select(tmp_path, **asked)
    skip = asked.get("frameskip", SKIP) or 2
    steps, ddof = HISTORY + asked.get("horizon", HORIZON), 0 if "task" in asked else 1
    future = asked.get("window_future_frames", HORIZON)
    windows = listed_windows((HISTORY + future) * skip)
    order = torch.randperm(len(windows), generator=torch.Generator().manual_seed(9101))
    assert batch.anchor_ids.tolist() == order[: asked.get("count", COUNT)].tolist()
    assert batch.horizon == steps - HISTORY
    for anchor, window in enumerate(batch.anchor_ids):
        episode, start = windows[window]
        assert batch.trajectory_ids[anchor] == episode
        rows = int(content.offsets[episode]) + start + skip * np.arange(steps)
        np.testing.assert_array_equal(batch.frames[anchor], content.columns["pixels"][rows])
        for block, first in enumerate(rows[:-1]):
            leaving = range(first, first + skip)
            actions = [standardised(content.columns["action"], row, ddof) for row in leaving]
            np.testing.assert_allclose(
                batch.action_blocks[anchor, block], np.concatenate(actions), rtol=1e-5, atol=1e-6
            )
        state = standardised(content.columns["pos_agent"], rows[-1], ddof)
        np.testing.assert_allclose(batch.endpoint_states[anchor], state, rtol=1e-10)
    # The last action of an episode, which is NaN, leaves no kept frame of any window.
    assert (batch.action_blocks != 0).all()
    feature = [math.hypot(*y) if "task" in asked else y[0] for y in batch.endpoint_states.tolist()]
    assert batch.labels.tolist() == [int(x > statistics.median(feature)) for x in feature]
    if "horizon" in asked:
        papers = select(tmp_path, **{**asked, "window_future_frames": None})
        assert papers.anchor_ids.tolist() != batch.anchor_ids.tolist()
        same = {**asked, "window_future_frames": asked["horizon"]}
        assert digest_of(select(tmp_path, **same)) == digest_of(papers)


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


def test_too_few_windows_names_both_numbers(tmp_path: Path) -> None:
    write_public_dataset(tmp_path / "a.h5", public_columns())
    have = len(listed_windows(15))
    with pytest.raises(InvalidArgument, match=f"count: is 500, .*has only {have} windows of 15"):
        select(tmp_path, count=500)
    with pytest.raises(InvalidArgument, match="has only 0 windows of 1500"):
        select(tmp_path, frameskip=300)

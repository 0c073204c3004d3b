"""Anchors of a real file against what the reference draws from the arrays it was written from."""

import math
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import score_reference
import torch
from acpc.contract import AnchorArrays, AnchorSource, Reading, digest_of
from acpc_server.data import load_task, open_dataset
from acpc_server.errors import InvalidArgument
from anchor_batches import drawn_anchors
from public_dataset import public_columns, write_public_dataset

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
def test_everything_is_what_the_reference_draws(
    tmp_path: Path, layout: dict[str, Any], asked: dict[str, Any]
) -> None:
    content = public_columns()
    write_public_dataset(tmp_path / "a.h5", content, **layout)
    (tmp_path / "current.yaml").write_text(CURRENT)
    batch = select(tmp_path, **asked)
    skip, future = asked.get("frameskip", SKIP) or 2, asked.get("window_future_frames", HORIZON)
    expected = score_reference.draw_anchors(
        content, history=HISTORY, horizon=asked.get("horizon", HORIZON), seed=9101, frameskip=skip,
        count=asked.get("count", COUNT), future_frames=future,
    )  # fmt: skip
    assert batch.anchor_ids.tolist() == expected.ids
    windows = score_reference.starts(content, HISTORY + future, skip)
    assert batch.trajectory_ids.tolist() == [windows[window][0] for window in expected.ids]
    np.testing.assert_array_equal(batch.frames, expected.frames)

    def scaled(values: Any, column: str) -> np.ndarray:
        """The same with a deviation over n where the task says so, not over n - 1."""
        rows = (~np.isnan(content.columns[column]).any(axis=1)).sum()
        return np.array(values) * ((1 - 1 / rows) ** -0.5 if "task" in asked else 1)

    blocks, states = scaled(expected.blocks, "action"), scaled(expected.states, "pos_agent")
    np.testing.assert_allclose(batch.action_blocks, blocks, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(batch.endpoint_states, states, rtol=1e-10)
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
    windows = score_reference.starts(public_columns(), 5, 3)
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
    have = len(score_reference.starts(public_columns(), 5, 3))
    with pytest.raises(InvalidArgument, match=f"count: is 500, .*has only {have} windows of 15"):
        select(tmp_path, count=500)
    with pytest.raises(InvalidArgument, match="has only 0 windows of 1500"):
        select(tmp_path, frameskip=300)

"""Certified fractions: which requests are made, how they are counted, and what the file holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from acpc_client import AnchorArrays
from acpc_client.errors import ArgumentError
from acpc_lab.factors import CertifiedShare, certified_shares, read_certified, write_certified
from numpy.typing import NDArray

COUNT, HISTORY, HORIZON = 4, 2, 3


@dataclass
class Certifier:
    """Certifies a view unless its first pixel is 255; notes what it was asked."""

    asked: list[dict[str, Any]]

    def certify_pool(
        self, checkpoint: str, history: NDArray[Any], pool: NDArray[Any], goal: NDArray[Any],
        *, past_blocks: NDArray[Any], views: NDArray[Any],
    ) -> Any:  # noqa: ANN401  # fmt: skip
        self.asked.append({"pool": pool, "goal": goal, "past": past_blocks, "views": views})
        held = [view[0, 0, 0, 0] != 255 for view in views]
        return SimpleNamespace(
            views=[SimpleNamespace(top1=SimpleNamespace(certified=one)) for one in held]
        )


def anchors() -> AnchorArrays:
    steps = HISTORY + HORIZON
    frames = np.arange(COUNT * steps * 2 * 2 * 3).reshape(COUNT, steps, 2, 2, 3) % 200
    blocks = np.random.default_rng(0).random((COUNT, steps - 1, 2), np.float32)
    return AnchorArrays(
        history=HISTORY,
        frames=frames.astype(np.uint8),
        action_blocks=blocks,
        endpoint_states=np.zeros((COUNT, 1)),
        labels=np.zeros(COUNT, np.int64),
        anchor_ids=np.arange(COUNT),
    )


def test_an_anchor_counts_where_every_view_of_the_group_is_certified() -> None:
    views = {
        name: np.zeros((COUNT, draws, HISTORY, 2, 2, 3), np.uint8)
        for name, draws in (("light:0.5", 2), ("light:1", 40), ("hue:1", 30))
    }
    views["light:0.5"][1, 1, 0, 0, 0, 0] = 255
    views["hue:1"][:, 29, 0, 0, 0, 0] = 255
    client = Certifier([])
    rows = certified_shares(client, "a", anchors(), views, candidates=3)  # type: ignore[arg-type]
    assert [(row.shift, row.certified, row.anchors) for row in rows] == [
        ("given_views:light:0.5", 3, 4), ("given_views:light:1", 4, 4), ("given_views:hue:1", 0, 4),
    ]  # fmt: skip
    assert [len(ask["views"]) for ask in client.asked] == [
        42,
        30,
    ] * COUNT  # at most 64 in a request
    given = anchors()
    for index, ask in enumerate(client.asked[::2]):
        assert np.array_equal(ask["pool"][0], given.action_blocks[index, HISTORY - 1 :])
        assert ask["pool"].shape == (3, HORIZON, 2)
        assert len(np.unique(ask["pool"].reshape(3, -1), axis=0)) == 3
        assert np.array_equal(ask["goal"], given.frames[index, -1])
        assert np.array_equal(ask["past"], given.action_blocks[index, : HISTORY - 1])


def test_the_file_gives_back_its_rows(tmp_path: Path) -> None:
    rows = [CertifiedShare("a,b", "given_views:light:1", 3, 4), CertifiedShare("c", "blur:5", 0, 2)]
    write_certified(tmp_path / "certified.csv", rows)
    assert read_certified(tmp_path / "certified.csv") == rows


@pytest.mark.parametrize(
    "text",
    ["", "checkpoint,shift\n", "checkpoint,shift,certified,anchors\na,b,c,4\n",
     "checkpoint,shift,certified,anchors\na,b,5,4\n", "checkpoint,shift,certified,anchors\na,b\n"],
)  # fmt: skip
def test_another_file_is_told(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.csv"
    path.write_text(text)
    with pytest.raises(ArgumentError, match=r"certified: .*wanted a CSV file with the columns"):
        read_certified(path)
    with pytest.raises(ArgumentError, match="No such file"):
        read_certified(tmp_path / "none.csv")

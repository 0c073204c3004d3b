"""What is encoded when a planning session moves on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from acpc.contract import PlanFrame
from acpc_server.interactive import Planner
from planning_world import SIDE, WIDTH, PlanningWorld, context, moment, noise
from torch import Tensor


def test_of_the_frames_only_the_new_one_is_encoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = PlanningWorld(tmp_path)
    monkeypatch.setattr(world.engine.latents, "get", lambda _: {})  # the session holds what it has
    encode, encoded = world.engine.encode, [0]

    def counted(model: Any, frames: Tensor, *rest: Any) -> Tensor:  # noqa: ANN401
        encoded[-1] += len(frames)
        return encode(model, frames, *rest)

    monkeypatch.setattr(world.engine, "encode", counted)
    session = world.open(moment(views=noise(0.08, draws=1)))
    planner = Planner(world.engine, max_frames=1000, max_predictions=100_000)
    rng = np.random.default_rng(3)
    for _ in range(2):
        frame = rng.integers(0, 256, (1, SIDE, SIDE, 3), np.uint8)
        blocks = rng.standard_normal((2, WIDTH), np.float32)
        session = planner.move(session, PlanFrame(history=frame, keep=2, past_blocks=blocks))
        encoded.append(0)
        planner.encode(session, context())
    window, view, goal = 3, 3, 1
    assert encoded == [window + view + goal, 1 + view, 1 + view]

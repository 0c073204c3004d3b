"""The two-room world as a closed loop, through a real server."""

from pathlib import Path

import pytest
from acpc_client import CheckpointRef, GaussianNoise, Identity
from closed_loop import TwoRooms
from served_world import served

pytestmark = pytest.mark.slow

SWEEP = Path(__file__).parents[2] / "examples" / "two_room" / "sweep"


def test_a_planner_reaches_its_goals_on_clean_frames_and_fewer_through_noise(
    tmp_path: Path,
) -> None:
    """The unaugmented checkpoint, eight episodes; sigma 0.5 leaves next to nothing of a frame."""
    checkpoint = CheckpointRef("noise-0.00-run-0")
    (tmp_path / "datasets").mkdir()
    with served(SWEEP, tmp_path / "datasets", tmp_path / "state") as client:
        world = TwoRooms(client)
        clean = world.evaluate(checkpoint, Identity(), [42, 43], 4)
        noisy = world.evaluate(checkpoint, GaussianNoise(0.5), [42, 43], 4)
    assert len(clean) == len(noisy) == 2
    assert all(0 <= count <= 4 for count in (*clean, *noisy))
    assert sum(clean) >= 6
    assert sum(noisy) < sum(clean)

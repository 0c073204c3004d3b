"""The two-room world as a closed loop, through a real server."""

import sys
from pathlib import Path

import processes
import pytest
from acpc_client import CheckpointRef, GaussianNoise, Identity
from closed_loop import TwoRooms
from served_world import served

EXAMPLES = Path(__file__).parents[2] / "examples"
SWEEP = EXAMPLES / "two_room" / "sweep"
CODE = """
from acpc_lab.evaluation import SuccessRows
from acpc_lab.tables import parse_csv
from closed_loop_demo import NEW_SHIFTS, TRAINED_ON, show
from rich.console import Console
lines = ["task,run,level,checkpoint,shift,seed,episodes,successes"]
for shift in ("identity", TRAINED_ON, *NEW_SHIFTS):
    lines.append(f"two-room,0,0.02,noise,{shift},42,20,16")
show(parse_csv("\\n".join(lines), SuccessRows), Console(width=80))
"""


def test_every_cell_of_the_demo_s_table_fits_80_columns() -> None:
    ended = processes.run([sys.executable, "-c", CODE], cwd=EXAMPLES)
    assert ended.stdout.count("80 [58, 92]") == 4
    assert "…" not in ended.stdout


@pytest.mark.slow
def test_a_planner_reaches_its_goals_on_clean_frames_and_fewer_through_noise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The unaugmented checkpoint, eight episodes; sigma 0.5 leaves next to nothing of a frame."""
    checkpoint = CheckpointRef("noise-0.00-run-0")
    (tmp_path / "datasets").mkdir()
    with served(SWEEP, tmp_path / "datasets", tmp_path / "state") as client:
        world = TwoRooms(client)
        clean = world.evaluate(checkpoint, Identity(), [42, 43], 4)
        noisy = world.evaluate(checkpoint, GaussianNoise(0.5), [42, 43], 4)
    told = capsys.readouterr().out
    assert f"{checkpoint.name}, gaussian_noise:0.5: {sum(noisy)} of 8\n" in told
    assert len(clean) == len(noisy) == 2
    assert all(0 <= count <= 4 for count in (*clean, *noisy))
    assert sum(clean) >= 6
    assert sum(noisy) < sum(clean)

"""Each demo, run as its reader runs it, does what its page says."""

import json
import re
import sys
from pathlib import Path

import processes
import pytest
from example_scripts import EXAMPLES
from server_process import ServerProcess

# What the first page calls the demo's verdicts, in its order.
CHECKPOINTS = ("two-room-base", "two-room-augmented", "two-room-collapsed", "two-room-augmented")


def ran(name: str, *words: object) -> str:
    """What an example prints, in one line."""
    command = [sys.executable, EXAMPLES / name, *map(str, words)]
    return " ".join(processes.run(command, seconds=900).stdout.split())


@pytest.mark.slow
def test_the_demo_ends_with_the_verdicts_of_the_first_page(tmp_path: Path) -> None:
    """One fails surely, one passes surely, the trap is found, and few anchors do not decide."""
    printed = ran("demo.py", "--out", tmp_path)
    rows = json.loads((tmp_path / "results.json").read_text())["verdicts"]
    page = (EXAMPLES.parent / "README.md").read_text()
    written = re.findall(
        r"^\| trained [^|]* \| (passes|fails)[^|]* \| (\w+) \|$", page, re.MULTILINE
    )
    assert [row["checkpoint"] for row in rows] == list(CHECKPOINTS)
    assert written == [
        (
            "passes" if row["passed"] else "fails",
            "undecided" if row["sure"] == "undecided" else "yes",
        )
        for row in rows
    ]
    assert [row["sure"] for row in rows] == ["failed", "passed", "failed", "undecided"]
    assert (rows[3]["anchors"], rows[1]["anchors"]) == (25, 400)  # "25 anchors instead of 400"
    assert "The second lesson: few anchors do not decide." in printed
    assert "The last one is the trap." in printed
    assert (tmp_path / "verdicts.png").stat().st_size > 10_000


def test_a_run_of_the_paper_s_layout_is_imported_and_scored(tmp_path: Path) -> None:
    printed = ran("import_demo.py", "--out", tmp_path)
    assert "config.yaml, data.dataset.frameskip" in printed and "PASSED" in printed
    told = json.loads((tmp_path / "checkpoints/run/source.json").read_text())
    assert [*told["weights"]] == ["weights_epoch_1.pt", "weights_epoch_2.pt"]
    assert told["augmentation"] == {"type": "gaussian", "std": 0.16}


@pytest.mark.slow
def test_a_study_is_measured_and_verified(tmp_path: Path) -> None:
    shown = ran("study_demo.py", "--only", "sensitivity", "--out", tmp_path)
    assert (tmp_path / "sensitivity" / "study.json").exists()
    assert "sensitivity: augmented, a checkpoint is" in shown and str(tmp_path) in shown
    table = (tmp_path / "sensitivity.txt").read_text()
    assert "two-room" in table and table not in shown


@pytest.mark.slow
def test_the_planner_s_loop_ends_with_a_line_per_checkpoint() -> None:
    """Without noise every view is the clean one, up to the rounding of a nearly equal runner-up."""
    printed = ran("planner_loop.py", "--episodes", 1, "--sigma", 0)
    accepted = re.findall(r"(two-room-\w+): [^:]*?(\d+) accept", printed)
    assert [name for name, _ in accepted] == ["two-room-base", "two-room-augmented"]
    assert all(int(count) > 0 for _, count in accepted)


@pytest.mark.slow
@pytest.mark.parametrize("own", [False, True], ids=["demo", "own"])
def test_the_compose_file_s_load_fills_the_dashboards_of_the_demo_alone(
    tmp_path: Path, own: bool
) -> None:
    """It leaves a server with checkpoints of its own alone."""
    (datasets := tmp_path / "datasets").mkdir()
    checkpoints = datasets if own else EXAMPLES / "two_room" / "checkpoints"
    with ServerProcess(checkpoints, datasets, tmp_path / "state") as server:
        given = ("--target", server.address, "--out", tmp_path, "--rounds", 1)
        said, text = ran("compose_demo.py", *given), server.metrics()
    assert ("nothing to demonstrate" in said) == (not any(datasets.iterdir())) == own
    if not own:
        assert said.count("two-room-") == 3 and text.count('certificate="elite"') >= 3
        for checkpoint, outcome in (("base", "failed"), ("augmented", "passed")):
            series = f'{{checkpoint="two-room-{checkpoint}",outcome="{outcome}"}} 1.0'
            assert f"acpc_verdicts_total{series}" in text

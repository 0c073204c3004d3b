"""The compose file's demo fills the dashboards: verdicts and certificates of three checkpoints."""

import sys
from pathlib import Path

import processes
import pytest
from example_scripts import EXAMPLES
from server_process import ServerProcess

pytestmark = pytest.mark.slow


def _run(target: str, out: Path) -> str:
    program = str(EXAMPLES / "compose_demo.py")
    given = ["--target", target, "--out", str(out), "--rounds", "1"]
    return processes.run([sys.executable, program, *given]).stdout


def test_a_round_is_judged_and_certified(tmp_path: Path) -> None:
    (tmp_path / "datasets").mkdir()
    checkpoints = EXAMPLES / "two_room" / "checkpoints"
    with ServerProcess(checkpoints, tmp_path / "datasets", tmp_path / "state") as server:
        said = _run(server.address, tmp_path)
        text = server.metrics()
    assert said.count("two-room-") == 3
    for checkpoint, outcome in (("base", "failed"), ("augmented", "passed")):
        series = f'{{checkpoint="two-room-{checkpoint}",outcome="{outcome}"}} 1.0'
        assert f"acpc_verdicts_total{series}" in text
    assert text.count('certificate="elite"') >= 3


def test_it_leaves_a_server_with_checkpoints_of_its_own_alone(tmp_path: Path) -> None:
    for name in ("checkpoints", "datasets"):
        (tmp_path / name).mkdir()
    roots = tmp_path / "checkpoints", tmp_path / "datasets", tmp_path / "state"
    with ServerProcess(*roots) as server:
        assert "nothing to demonstrate" in _run(server.address, tmp_path)
    assert not list((tmp_path / "datasets").iterdir())

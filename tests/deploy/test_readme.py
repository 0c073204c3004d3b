"""Every command and program of the first page runs as it is written there."""

import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import processes
import pytest
from deployment_files import ROOT
from server_process import ServerProcess

PAGE = (ROOT / "README.md").read_text()
_, OWN = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
_, IMPORT, SERVE, SCORE = OWN.splitlines()
SCRIPTS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
TWO_ROOM = ROOT / "examples" / "two_room"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home folder with a run, a checkpoint and a dataset where the page has them."""
    folder = tmp_path_factory.mktemp("home")
    noisy = TWO_ROOM / "checkpoints/two-room-augmented"
    shutil.copytree(noisy, folder / "checkpoints/lewm-tworooms-noise")
    run = shutil.copytree(TWO_ROOM / "paper_run", folder / "runs/lewm-tworooms")
    for later in ("two-room_epoch_2_object.ckpt", "two-room_weights.ckpt"):
        (run / later).unlink()
    dataset = folder / "datasets" / "tworoom.h5"
    write = [sys.executable, TWO_ROOM / "dataset.py", "--out", dataset, "--episodes", "40"]
    processes.run(write)
    return folder


@pytest.fixture(scope="module")
def environment(home: Path) -> dict[str, str]:
    """Variables of a shell in that home; the server takes any free port."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ACPC_")}
    free = {"ACPC_PORT": "0", "ACPC_METRICS_PORT": "0"}
    return kept | free | {"HOME": str(home), "PATH": path, "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def imported(home: Path, environment: dict[str, str]) -> str:
    """What the import of the run prints."""
    return processes.run(["bash", "-c", IMPORT], env=environment, cwd=home).stdout


@pytest.fixture(scope="module")
def server(home: Path, environment: dict[str, str], imported: str) -> Iterator[ServerProcess]:
    assert imported
    started = ServerProcess(home, home, home, environment=environment, cwd=home)
    started.command = ["bash", "-c", f"exec {SERVE}"]
    with started:
        yield started
        assert started.bugs() == []


@pytest.mark.process
def test_the_run_is_imported(home: Path, imported: str) -> None:
    assert f"wrote {home}/checkpoints/lewm-tworooms (lewm, digest " in imported


@pytest.mark.process
def test_the_served_checkpoint_is_scored(
    home: Path, environment: dict[str, str], server: ServerProcess
) -> None:
    given = environment | {"ACPC_TARGET": server.address}
    printed = processes.run(["bash", "-c", SCORE], env=given, cwd=home).stdout
    assert "lewm-tworooms-noise" in printed


@pytest.mark.process
@pytest.mark.parametrize("script", SCRIPTS, ids=["score", "certify"])
def test_the_programs_run(
    script: str, server: ServerProcess, home: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    random = np.random.default_rng(0)
    frames = random.integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)
    actions = random.standard_normal((32, 25, 2), dtype=np.float32)
    names = {"history": frames[:3], "goal": frames[3]}
    names |= {"past_actions": actions[0, :10], "candidate_actions": actions}
    monkeypatch.chdir(home)
    assert script.count("localhost:50051") == 1
    exec(script.replace("localhost:50051", server.address), names)  # noqa: S102  the page's own
    assert capsys.readouterr().out.strip()

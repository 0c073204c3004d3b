"""Whoever follows a job outlasts its server, and goes on after its own end: followers by faults."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import processes
import pytest
from acpc_client import (
    AcpcClient,
    DatasetAnchors,
    GaussianNoise,
    Score,
    ScoreProtocol,
)
from acpc_client.errors import AcpcError, NotFound, ServerAway
from acpc_lab.sweeps import SweepResults
from faulty_world import FaultyWorld, write_faulty_world
from server_process import ServerProcess
from waiting import GENEROUS_SECONDS, wait_until

pytestmark = pytest.mark.slow  # kills servers
ACPC = str(Path(sys.executable).with_name("acpc"))
ANCHORS = DatasetAnchors("rooms.h5", "tworoom", count=35)
NOISE = GaussianNoise(0.08)
PROTOCOL = ScoreProtocol(draws=3)
# What a follower is told, line by line.
Tell = Callable[[str], None]
Follower = Callable[["Scene", Tell], dict[str, float]]
BACK = "the server is back"
# The job is held up in its third shard.
HELD = "hang 3"


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> FaultyWorld:
    return write_faulty_world(tmp_path_factory.mktemp("patience"))


@pytest.fixture(scope="module")
def server(faulty: FaultyWorld) -> Iterator[ServerProcess]:
    with faulty.server("state") as process:
        yield process


@pytest.fixture
def held(faulty: FaultyWorld, server: ServerProcess, undisturbed: dict[str, float]) -> None:
    server.kill()
    faulty.inject("state", HELD)
    server.restart()


def numbers(score: Score) -> dict[str, float]:
    return {"ir": score.checkpoint.ir_raw, "sr": score.checkpoint.sr}


@pytest.fixture(scope="module")
def undisturbed(server: ServerProcess) -> dict[str, float]:
    with AcpcClient(server.address) as client:
        job = client.score_checkpoint("model", ANCHORS, NOISE, protocol=PROTOCOL)
        return numbers(job.result(GENEROUS_SECONDS))


@dataclass
class Scene:
    """A server under a folder of its own, and what a follower is asked to follow there."""

    faulty: FaultyWorld
    server: ServerProcess
    folder: Path

    @property
    def target(self) -> str:
        return self.server.address

    def sweep(self) -> Path:
        """A sweep file of the one job, named so that no other test has asked for it."""
        document = {
            "name": self.folder.name,
            "checkpoints": ["model"],
            "anchors": {"dataset": "rooms.h5", "task": "tworoom", "count": 35},
            "protocol": {"draws": 3},
            "shifts": ["gaussian_noise:0.08"],
        }
        file = self.folder / "sweep.yaml"
        file.write_text(json.dumps(document))  # JSON is YAML
        return file


def line_of(tell: Tell) -> Callable[[AcpcError | None], None]:
    return lambda away: tell(away.message if away else BACK)


def blocking(at: Scene, tell: Tell) -> dict[str, float]:
    with AcpcClient(at.target, on_away=line_of(tell)) as client:
        job = client.score_checkpoint("model", ANCHORS, NOISE, protocol=PROTOCOL)
        return numbers(job.result())


def command(at: Scene, tell: Tell, *arguments: object) -> None:
    with processes.running(
        [ACPC, *map(str, arguments), "--target", at.target],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            tell(line.rstrip())
        assert process.wait() == 3, lines  # no reference, and its SR is low


def of_folder(folder: Path) -> dict[str, float]:
    (item,) = SweepResults.open(folder)
    assert item.attempt == 1 and item.score is not None
    return numbers(item.score)


def sweep_command(at: Scene, tell: Tell) -> dict[str, float]:
    command(at, tell, "sweep", "run", at.sweep())
    return of_folder(at.folder / f"{at.folder.name}.sweep")


def watched(at: Scene, tell: Tell) -> dict[str, float]:
    command(at, tell, "watch", "model", "--sweep", at.sweep(), "--once")
    return of_folder(at.folder / f"{at.folder.name}.watch")


FOLLOWERS = (blocking, sweep_command, watched)


@pytest.fixture
def at(faulty: FaultyWorld, server: ServerProcess, held: None, tmp_path: Path) -> Scene:
    return Scene(faulty, server, tmp_path)


def jobs(at: Scene) -> set[str]:
    with AcpcClient(at.target) as client:
        return {operation.name for operation in client.operations.list()}


def restarted(at: Scene) -> None:
    at.server.kill()
    at.faulty.inject("state", "")
    at.server.restart()


@pytest.mark.parametrize("follower", FOLLOWERS)
def test_a_follower_outlasts_its_server(
    follower: Follower, at: Scene, undisturbed: dict[str, float]
) -> None:
    """The server is killed under the job, which is measured once, to the same bits."""
    before, told = jobs(at), list[str]()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(follower, at, told.append)
        try:
            wait_until(lambda: future.done() or at.faulty.hangs("state"))
            at.server.kill()
            wait_until(lambda: future.done() or any("is away" in line for line in told))
        finally:  # whoever follows comes to an end
            restarted(at)
        assert future.result(2 * GENEROUS_SECONDS) == undisturbed
    away = [line for line in told if "is away" in line]
    assert len(away) == 1, told
    assert at.target in away[0] and "waiting up to 10 min" in away[0]
    assert told.count(BACK) == 1
    assert len(jobs(at) - before) == 1


@pytest.mark.usefixtures("held")
def test_without_patience_the_error_says_how_to_go_on(
    faulty: FaultyWorld, server: ServerProcess, undisturbed: dict[str, float]
) -> None:
    with AcpcClient(server.address, patience=0.5, on_away=lambda _: None) as client:
        job = client.score_checkpoint("model", ANCHORS, NOISE, protocol=PROTOCOL)
        server.kill()
        with pytest.raises(ServerAway, match=r"away for 0\.5 s \(connection refused\)") as caught:
            job.result()
        assert f"acpc show job {job.name} --wait" in str(caught.value)
        command = [ACPC, "show", "job", job.name, "--wait", "--target", server.address]
        environment = {**os.environ, "ACPC_PATIENCE": "0"}
        shown = processes.run(command, check=False, env=environment)
        assert shown.returncode == 1
        assert f"acpc show job {job.name} --wait" in shown.stderr
        faulty.inject("state", "")
        server.restart()
        assert numbers(job.result(GENEROUS_SECONDS, patience=GENEROUS_SECONDS)) == undisturbed


@pytest.mark.usefixtures("held")
def test_a_job_whose_record_is_lost_is_said_to_be_lost(
    faulty: FaultyWorld, server: ServerProcess
) -> None:
    with AcpcClient(server.address, on_away=lambda _: None) as client:
        job = client.score_checkpoint("model", ANCHORS, NOISE, protocol=PROTOCOL)
        server.kill()
        shutil.rmtree(faulty.world.root / "state")
        server.restart()
        with pytest.raises(NotFound, match="the server has no record of operations/"):
            job.result()

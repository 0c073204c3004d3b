"""Whoever follows a job outlasts its server: kill -9 and a restart under every kind of follower."""

import asyncio
import json
import logging
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import processes
import pytest
from acpc_client import (
    AcpcClient,
    AsyncAcpcClient,
    DatasetAnchors,
    GaussianNoise,
    Score,
    ScoreProtocol,
)
from acpc_client.errors import AcpcError, NotFound, ServerAway
from acpc_lab.integrations import EpochScorer
from faulty_world import FaultyWorld, write_faulty_world
from server_process import ServerProcess
from waiting import GENEROUS_SECONDS, wait_until

pytestmark = pytest.mark.slow  # kills servers
ACPC = str(Path(sys.executable).with_name("acpc"))
ANCHORS = DatasetAnchors("rooms.h5", "tworoom", count=35)
NOISE = GaussianNoise(0.08)
PROTOCOL = ScoreProtocol(draws=3)
FLAGS = [
    "--dataset", "rooms.h5", "--task", "tworoom", "--anchors", "35",
    "--shift", "gaussian_noise:0.08", "--draws", "3",
]  # fmt: skip
# What a follower is told, line by line; its first line names the job where there is one.
Tell = Callable[[str], None]
Follower = Callable[[str, Tell], dict[str, float]]
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
    """A checkpoint that is loaded anew, and holds its job up until the server is back."""
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


def line_of(tell: Tell) -> Callable[[AcpcError | None], None]:
    return lambda away: tell(away.message if away else BACK)


def blocking(target: str, tell: Tell) -> dict[str, float]:
    with AcpcClient(target, on_away=line_of(tell)) as client:
        job = client.score_checkpoint("model", ANCHORS, NOISE, protocol=PROTOCOL)
        return numbers(job.result())


def in_a_loop(target: str, tell: Tell) -> dict[str, float]:
    async def follow() -> dict[str, float]:
        async with AsyncAcpcClient(target, on_away=line_of(tell)) as client:
            job = await client.score_checkpoint("model", ANCHORS, NOISE, protocol=PROTOCOL)
            return numbers(await job.result())

    return asyncio.run(follow())


def command(target: str, tell: Tell, *arguments: str) -> dict[str, float]:
    with (
        tempfile.TemporaryFile("w+") as answer,  # a pipe would fill up: it is read afterwards
        processes.running(
            [ACPC, *arguments, "--target", target, "--json"],
            stdout=answer, stderr=subprocess.PIPE, text=True,
        ) as process,
    ):  # fmt: skip
        assert process.stderr is not None
        for line in process.stderr:
            tell(line.rstrip())
        assert process.wait() == 3, "no reference, and its SR is low"
        answer.seek(0)
        side = json.load(answer)["answer"]["checkpoint"]
    return {"ir": side["ir_raw"], "sr": side["sr"]}


def score_command(target: str, tell: Tell) -> dict[str, float]:
    return command(target, tell, "score", "model", *FLAGS)


def watch_command(target: str, tell: Tell) -> dict[str, float]:
    with AcpcClient(target) as client:
        job = client.score_checkpoint("model", ANCHORS, NOISE, protocol=PROTOCOL)
    tell(job.name)
    return command(target, tell, "operations", "watch", job.name)


COMMANDS = (score_command, watch_command)


def epochs(target: str, tell: Tell) -> dict[str, float]:
    handler = logging.Handler()
    handler.emit = lambda record: tell(record.getMessage())
    log = logging.getLogger("acpc_lab")
    log.addHandler(handler)
    with EpochScorer(target, ANCHORS, NOISE, protocol=PROTOCOL) as scorer:
        scorer.submit(0, "model")
        assert scorer.drain(2 * GENEROUS_SECONDS)
        (found,) = scorer.arrived()
    log.removeHandler(handler)
    assert found.score is not None, found.error
    return numbers(found.score)


def killed_under(
    faulty: FaultyWorld, server: ServerProcess, follower: Follower
) -> tuple[dict[str, float], list[str]]:
    """What a follower returned whose server is killed under its job, and what it was told."""
    told: list[str] = []

    def followed() -> bool:
        return follower not in COMMANDS or len(told) > 1  # the job, and its first progress

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(follower, server.address, told.append)
        try:
            wait_until(lambda: future.done() or (faulty.hangs("state") and followed()))
            server.kill()
            wait_until(lambda: future.done() or any("is away" in line for line in told))
        finally:  # whoever follows comes to an end
            server.kill()
            faulty.inject("state", "")
            server.restart()
        return future.result(2 * GENEROUS_SECONDS), told


@pytest.mark.parametrize("follower", [blocking, in_a_loop, score_command, watch_command])
@pytest.mark.usefixtures("held")
def test_a_follower_outlasts_a_restart(
    follower: Follower, faulty: FaultyWorld, server: ServerProcess, undisturbed: dict[str, float]
) -> None:
    found, told = killed_under(faulty, server, follower)
    assert found == undisturbed
    away = [line for line in told if "is away" in line]
    assert len(away) == 1, told
    assert server.address in away[0]
    assert "waiting up to 10 min" in away[0]
    assert told.count(BACK) == 1
    if follower in COMMANDS:
        assert told[0].startswith("operations/"), "before anything else can fail"


@pytest.mark.usefixtures("held")
def test_a_training_callback_outlasts_a_restart(
    faulty: FaultyWorld, server: ServerProcess, undisturbed: dict[str, float]
) -> None:
    found, told = killed_under(faulty, server, epochs)
    assert found == undisturbed
    assert len([line for line in told if "is away" in line]) == 1


@pytest.mark.usefixtures("held")
def test_without_patience_the_error_says_how_to_go_on(
    faulty: FaultyWorld, server: ServerProcess, undisturbed: dict[str, float]
) -> None:
    with AcpcClient(server.address, patience=0.5, on_away=lambda _: None) as client:
        job = client.score_checkpoint("model", ANCHORS, NOISE, protocol=PROTOCOL)
        server.kill()
        with pytest.raises(ServerAway, match=r"away for 0\.5 s \(connection refused\)") as caught:
            job.result()
        assert f"acpc operations watch {job.name}" in str(caught.value)
        command = [ACPC, "operations", "watch", job.name, "--target", server.address]
        shown = processes.run([*command, "--patience", "0"], check=False)
        assert shown.returncode == 1
        assert f"acpc operations watch {job.name}" in shown.stderr
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

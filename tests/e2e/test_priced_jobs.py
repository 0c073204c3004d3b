"""Law: what frames weigh as recorded decides whether a job is taken on, not what it then holds."""

from collections.abc import Iterator

import grpc
import pytest
import wire
from acpc.v1.anchor_service_pb2 import CreateAnchorSetRequest
from job_world import JobCaller
from served_world import never_written, write_world
from server_process import ServerProcess
from watching import MIB, Resident, holdings

MARGIN_MIB = 400


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, JobCaller]]:
    world = write_world(tmp_path_factory.mktemp("priced"))
    for name, side in (("big.h5", 4096), ("large.h5", 1024)):
        never_written(world.dataset_root / name, side)
    with world.server() as server, grpc.insecure_channel(server.address) as channel:
        yield server, JobCaller(channel)


def source(name: str) -> dict[str, object]:
    return {"dataset": name, "task": "tworoom", "count": 2}


def job(name: str) -> object:
    return wire.score(dataset=source(name), protocol={"draws": 2, "horizon": 20})


def test_an_anchor_too_large_to_hold_is_rejected_with_its_bytes(
    served: tuple[ServerProcess, JobCaller],
) -> None:
    """By a job, and by a set that is to be made of it."""
    server, calls = served
    before = holdings(server.pid)["rss_mib"]
    found = wire.refusal(lambda: calls.submit(job("big.h5")))
    assert (found.code, found.reason) == ("INVALID_ARGUMENT", "ANCHOR_TOO_LARGE")
    assert f"{23 * 3 * 4096**2} bytes" in found.message
    request = CreateAnchorSetRequest(source=source("big.h5"), history=3, horizon=20)
    found = wire.refusal(lambda: calls.anchors.CreateAnchorSet(request))
    assert (found.code, found.fields) == ("INVALID_ARGUMENT", ("source.dataset",))
    assert found.reason == "ANCHOR_TOO_LARGE"
    assert holdings(server.pid)["rss_mib"] - before < MARGIN_MIB


def test_a_job_of_large_frames_holds_few_of_them_as_numbers(
    served: tuple[ServerProcess, JobCaller],
) -> None:
    server, calls = served
    with Resident(server.pid, within=600) as memory:
        done = calls.finished(calls.submit(job("large.h5")).name)
    assert not done.HasField("error"), done.error
    # The raw frames of both anchors are 138 MiB; in float32 at their own size they were 1.9 GiB.
    assert memory.highest < (138 + MARGIN_MIB) * MIB

"""Law: what frames weigh as recorded decides whether a job is taken on, not what it then holds."""

import threading
from pathlib import Path

import grpc
import pytest
import wire
from acpc.v1 import anchor_service_pb2, anchor_service_pb2_grpc, scoring_service_pb2_grpc
from job_world import JobCaller
from served_world import ServedWorld, never_written, write_world
from waiting import GENEROUS_SECONDS
from watching import holdings

MARGIN_MIB = 400


@pytest.fixture
def world(tmp_path: Path) -> ServedWorld:
    return write_world(tmp_path)


def job(name: str) -> object:
    dataset = {"dataset": name, "task": "tworoom", "count": 2}
    return wire.score(dataset=dataset, protocol={"draws": 2, "horizon": 20})


def test_an_anchor_too_large_to_hold_is_rejected_with_its_bytes(world: ServedWorld) -> None:
    never_written(world.dataset_root / "big.h5", 4096)
    with world.server() as server, grpc.insecure_channel(server.address) as channel:
        stub = scoring_service_pb2_grpc.ScoringServiceStub(channel)
        found = wire.refusal(lambda: stub.ScoreCheckpoint(job("big.h5"), timeout=GENEROUS_SECONDS))
    assert found is not None
    assert (found.code, found.reason) == ("INVALID_ARGUMENT", "ANCHOR_TOO_LARGE")
    assert f"{23 * 3 * 4096**2} bytes" in found.message


def test_nor_does_a_set_take_such_an_anchor(world: ServedWorld) -> None:
    never_written(world.dataset_root / "big.h5", 4096)
    source = {"dataset": "big.h5", "task": "tworoom", "count": 2}
    request = anchor_service_pb2.CreateAnchorSetRequest(source=source, history=3, horizon=20)
    with world.server() as server, grpc.insecure_channel(server.address) as channel:
        stub = anchor_service_pb2_grpc.AnchorServiceStub(channel)
        found = wire.refusal(lambda: stub.CreateAnchorSet(request, timeout=GENEROUS_SECONDS))
        peak = holdings(server.pid)["rss_mib"]
    assert found is not None
    assert (found.code, found.fields) == ("INVALID_ARGUMENT", ("source.dataset",))
    assert found.reason == "ANCHOR_TOO_LARGE" and peak < 2 * MARGIN_MIB


def test_a_job_of_large_frames_holds_few_of_them_as_numbers(world: ServedWorld) -> None:
    never_written(world.dataset_root / "large.h5", 1024)
    over = threading.Event()
    with world.server() as server, grpc.insecure_channel(server.address) as channel:
        seen = [holdings(server.pid)["rss_mib"]]

        def sample() -> None:
            while not over.wait(0.02):
                seen.append(holdings(server.pid)["rss_mib"])

        sampler = threading.Thread(target=sample)
        sampler.start()
        caller = JobCaller(channel)
        try:
            done = caller.finished(caller.submit(job("large.h5")).name)
        finally:
            over.set()
            sampler.join()
        assert not done.HasField("error"), done.error
    # The raw frames of both anchors are 138 MiB; in float32 at their own size they were 1.9 GiB.
    assert max(seen) - seen[0] < 138 + MARGIN_MIB

"""Law: a stream lives as long as its caller wants; the server's time limit is for one pair."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
import wire
from acpc.v1.checkpoint_service_pb2 import LoadCheckpointRequest
from acpc.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from acpc.v1.diagnostic_service_pb2 import ComparePairsRequest
from acpc.v1.diagnostic_service_pb2_grpc import DiagnosticServiceStub
from served_world import ServedWorld

LIMIT = 20.0
# The same program with the limit of one pair cut from minutes to seconds.
PROGRAM = f"""
from acpc_server.cli import main
from acpc_server.rpc import diagnostic
diagnostic.MAX_REQUEST_SECONDS = {LIMIT}
main()
"""


@pytest.mark.nightly  # it waits for most of a minute; limits: tests/server/scheduling
def test_a_stream_outlives_the_limit_of_a_pair(world: ServedWorld, tmp_path: Path) -> None:
    server = world.server(tmp_path / "state")
    server.command[:1] = [sys.executable, "-c", PROGRAM]
    pair = ComparePairsRequest(pair=wire.pair())

    def slowly() -> Iterator[ComparePairsRequest]:
        yield pair
        for _ in range(2):
            time.sleep(0.7 * LIMIT)
            yield pair

    with server, grpc.insecure_channel(server.address) as channel:
        load = LoadCheckpointRequest(checkpoint=wire.checkpoint())
        CheckpointServiceStub(channel).LoadCheckpoint(load)
        answers = list(DiagnosticServiceStub(channel).ComparePairs(slowly()))
    assert [len(answer.response.results) for answer in answers] == [1, 1, 1]

"""Uploads by the client to real servers: killed, crowded, sent again; the digest stays."""

import dataclasses
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anchor_wire
import grpc
import numpy as np
import pytest
import wire
from acpc.contract import AnchorSample, DatasetAnchors
from acpc.v1 import anchor_service_pb2 as pb
from acpc.v1.anchor_service_pb2_grpc import AnchorServiceStub
from acpc_client import AnchorArrays, errors
from acpc_client.results.answers import UploadProgress
from acpc_client.sync.client import AcpcClient
from served_world import ServedWorld
from server_process import ServerProcess
from waiting import GENEROUS_SECONDS, wait_until

HISTORY = anchor_wire.HISTORY
# Three anchors of these frames are a shard of 8 MiB, 13 of them the 32 MiB of a stream.
LARGE, SHARD_BYTES, STREAM_BYTES = (420, 420), 2**23, 2**25


def arrays(
    count: int, seed: int, size: tuple[int, int] = (anchor_wire.HEIGHT, anchor_wire.WIDTH)
) -> tuple[AnchorArrays, str]:
    made = anchor_wire.anchor_arrays(count, seed, size=size)
    return AnchorArrays(history=HISTORY, **made), anchor_wire.digest(made)


class Frames:
    """Frames at whose every seventh read the server is killed and starts again: mid-stream."""

    def __init__(self, frames: np.ndarray, server: ServerProcess) -> None:
        self.shape, self.dtype, self.killed = frames.shape, frames.dtype, 0
        self._frames, self._server, self._reads = frames, server, 0

    def __getitem__(self, part: slice) -> np.ndarray:
        self._reads += 1
        if self._reads % 7 == 0 and self.killed < 3:
            self.killed += 1
            self._server.kill()
            self._server.restart()
        return self._frames[part]


def test_an_upload_survives_a_server_that_is_killed(world: ServedWorld, tmp_path: Path) -> None:
    anchors, digest = arrays(40, 0, LARGE)
    told: list[UploadProgress] = []
    total = anchors.frames.nbytes
    with world.server(tmp_path / "state") as server, AcpcClient(server.address) as client:
        frames = Frames(anchors.frames, server)
        given = dataclasses.replace(anchors, frames=frames)
        stored = client.anchors.upload(given, compress=False, progress=told.append)
    assert frames.killed == 3 and stored.digest == digest
    kept = [progress.stored for progress in told]
    assert kept == sorted(kept) and (kept[0], kept[-1]) == (0, 40)
    assert {(progress.total, progress.request_id) for progress in told} == {
        (40, told[0].request_id)
    }
    # What was stored before is not sent again, bar what was on its way.
    assert total < told[-1].sent_bytes < total + 3 * (STREAM_BYTES + SHARD_BYTES)


def test_equal_content_is_sent_once(client: AcpcClient) -> None:
    anchors, _ = arrays(20, 40, LARGE)
    first = client.anchors.upload(anchors, description="one", compress=False)
    told: list[UploadProgress] = []
    options = {"description": "two", "progress": told.append, "compress": False}
    again = client.anchors.upload(anchors, **options)
    assert (again.digest, again.description) == (first.digest, "one")
    assert told[-1].sent_bytes <= STREAM_BYTES + SHARD_BYTES < anchors.frames.nbytes
    assert [one.digest for one in client.anchors.list()].count(first.digest) == 1
    repeated = client.anchors.upload(anchors, **options)
    assert repeated.digest == first.digest
    assert told[-1].sent_bytes == 0
    newer = client.anchors.upload(arrays(5, 41)[0])
    assert [one.digest for one in client.anchors.list()][:2] == [newer.digest, first.digest]


def test_a_set_made_from_a_dataset_says_so_and_is_made_once(client: AcpcClient) -> None:
    source = DatasetAnchors("tworoom.h5", "tworoom", count=6)
    made = client.anchors.create(source, horizon=4, description="rooms", request_id="rooms")
    again = client.anchors.create(source, horizon=4, description="rooms", request_id="rooms")
    assert (again.digest, again.create_time) == (made.digest, made.create_time)
    assert made.source == DatasetAnchors(
        "tworoom.h5", "tworoom", 6, 9101, None, False, 4, AnchorSample.WINDOWS
    )
    assert (made.history, made.horizon, made.description) == (3, 4, "rooms")
    with pytest.raises(errors.AlreadyExists, match="another header"):
        client.anchors.create(source, horizon=5, description="rooms", request_id="rooms")
    one_each = DatasetAnchors("tworoom.h5", "tworoom", count=3, one_per_episode=True)
    assert client.anchors.create(one_each, horizon=4).digest != made.digest
    with pytest.raises(errors.InvalidArgument, match="only 3 episodes"):
        client.anchors.create(dataclasses.replace(one_each, count=4), horizon=4)


def test_uploads_of_one_name_wait_for_each_other(server: ServerProcess, client: AcpcClient) -> None:
    """A raw caller is refused with the time to come back; the client comes back by itself."""
    anchors, digest = arrays(20, 70)
    go_on = threading.Event()

    def slow() -> Iterator[Any]:
        yield anchor_wire.header("shared", anchors=4)
        go_on.wait(GENEROUS_SECONDS)
        yield anchor_wire.shard()

    with grpc.insecure_channel(server.address) as channel:
        stub = AnchorServiceStub(channel)
        holding = stub.UploadAnchors.future(slow())
        ask = pb.GetUploadRequest(request_id="shared")
        wait_until(lambda: wire.refusal(lambda: stub.GetUpload(ask)) is None)
        refused = wire.refusal(
            lambda: stub.UploadAnchors(iter([anchor_wire.header("shared", anchors=4)]))
        )
        assert (refused.code, refused.reason) == ("ABORTED", "CONCURRENT_CALL")
        assert refused.retry_after
        go_on.set()
        assert holding.result(timeout=GENEROUS_SECONDS).next_offset == 4
    two = [threading.Thread(target=client.anchors.upload, args=(anchors,)) for _ in range(2)]
    for thread in two:
        thread.start()
    for thread in two:
        thread.join()
    assert client.anchors.get(digest).anchors == 20

"""An upload that falls silent, or has no name, holds nothing for ever."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anchor_wire
import pytest
import wire
from acpc.v1 import anchor_service_pb2 as pb
from acpc.v1 import anchor_service_pb2_grpc as pb_grpc
from acpc_server.data import DatasetStore
from acpc_server.data.anchor_sets import AnchorLimits, AnchorStore
from acpc_server.observe import Metrics
from acpc_server.rpc.anchor import AnchorServicer
from acpc_server.scheduling import Quota
from served_door import channel, served
from waiting import GENEROUS_SECONDS

LIMITS = AnchorLimits(2**24, 2**24, 100, 4, 0.0, 3600.0)
IDLE = 0.3


@pytest.fixture
def stub(tmp_path: Path) -> Iterator[pb_grpc.AnchorServiceStub]:
    metrics = Metrics()
    store = AnchorStore(tmp_path / "anchors", LIMITS, metrics)
    servicer = AnchorServicer(
        store, DatasetStore(tmp_path), lambda digest, tenant: False, idle_seconds=IDLE
    )
    service = pb.DESCRIPTOR.services_by_name["AnchorService"]
    with (
        served({service: servicer}, metrics=metrics, total=Quota(streams=5)) as address,
        channel(address) as opened,
    ):
        yield pb_grpc.AnchorServiceStub(opened)


def silent_after(messages: list[Any], done: threading.Event) -> Iterator[Any]:
    yield from messages
    done.wait(GENEROUS_SECONDS)


@pytest.mark.parametrize("sent", [*(pytest.param(n, marks=pytest.mark.process) for n in (0, 1)), 2])
def test_silence_ends_a_stream_and_lets_go_of_its_upload(
    stub: pb_grpc.AnchorServiceStub, sent: int
) -> None:
    done = threading.Event()
    messages = [anchor_wire.header("quiet"), anchor_wire.shard()][:sent]
    refused = wire.refusal(lambda: stub.UploadAnchors(silent_after(messages, done)))
    assert refused is not None
    assert (refused.code, refused.reason) == ("DEADLINE_EXCEEDED", "UPLOAD_IDLE")
    assert "go on with the same request_id" in refused.message
    done.set()
    rest = [anchor_wire.header("quiet")]
    rest += [anchor_wire.shard(s, s + 4) for s in range(4 if sent == 2 else 0, 12, 4)]
    assert stub.UploadAnchors(iter(rest)).anchor_set.anchors == 12


def test_silent_streams_do_not_take_every_thread(stub: pb_grpc.AnchorServiceStub) -> None:
    """Streams have their own limit, so that other calls are answered beside them."""
    done = threading.Event()
    streams = [stub.UploadAnchors.future(silent_after([], done)) for _ in range(8)]
    assert (
        stub.ListAnchorSets(pb.ListAnchorSetsRequest(), timeout=GENEROUS_SECONDS).next_page_token
        == ""
    )
    codes = {stream.code().name for stream in streams}
    done.set()
    assert codes == {"DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED"}


def test_an_upload_without_a_name_is_one_stream(
    stub: pb_grpc.AnchorServiceStub, tmp_path: Path
) -> None:
    refused = wire.refusal(
        lambda: stub.UploadAnchors(iter([anchor_wire.header(), anchor_wire.shard()]))
    )
    assert refused is not None
    assert refused.reason == "UPLOAD_INCOMPLETE"
    assert stub.UploadAnchors(anchor_wire.upload()).next_offset == 12
    assert not list((tmp_path / "anchors/uploads").iterdir())

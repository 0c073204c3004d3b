"""Calls that fall silent, leave, or give no name hold nothing for ever."""

import gc
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anchor_wire
import grpc
import numpy as np
import pytest
import wire
from acpc.contract import AnchorArrays
from acpc.datasets.hdf5 import Hdf5Column
from acpc.v1 import anchor_service_pb2 as pb
from acpc.v1 import anchor_service_pb2_grpc as pb_grpc
from acpc_server.data import DatasetStore
from acpc_server.data.anchor_sets import AnchorLimits, AnchorStore, AnchorUpload
from acpc_server.observe import Metrics
from acpc_server.rpc import AnchorServicer, Call
from public_dataset import public_columns, write_public_dataset
from served_door import channel, served
from waiting import GENEROUS_SECONDS, wait_until

LIMITS = AnchorLimits(2**24, 100, 0.0, 3600.0)
IDLE = 0.3


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def idle() -> float:
    return IDLE


@pytest.fixture
def stub(tmp_path: Path, metrics: Metrics, idle: float) -> Iterator[pb_grpc.AnchorServiceStub]:
    write_public_dataset(tmp_path / "a.h5", public_columns())
    store = AnchorStore(tmp_path / "anchors", LIMITS, metrics)
    datasets = DatasetStore(tmp_path)
    servicer = AnchorServicer(store, datasets, lambda digest: False, idle_seconds=idle)
    service = pb.DESCRIPTOR.services_by_name["AnchorService"]
    with (
        served(
            {service: servicer}, metrics=metrics, places={"streams": 5, "uploads": 1}
        ) as address,
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
    assert (refused.code, refused.reason) == ("DEADLINE_EXCEEDED", "UPLOAD_IDLE")
    assert "go on with the same request_id" in refused.message
    done.set()
    rest = [anchor_wire.header("quiet")]
    rest += [anchor_wire.shard(s, s + 4) for s in range(4 if sent == 2 else 0, 12, 4)]
    assert stub.UploadAnchors(iter(rest)).anchor_set.anchors == 12


@pytest.mark.parametrize("idle", [GENEROUS_SECONDS])
def test_an_upload_that_waits_for_its_next_shard_holds_none(
    stub: pb_grpc.AnchorServiceStub,
) -> None:
    def shards() -> list[AnchorArrays]:
        return [x for x in gc.get_objects() if isinstance(x, AnchorArrays)]

    def stored() -> bool:
        with suppress(grpc.RpcError):  # it has not begun
            return stub.GetUpload(pb.GetUploadRequest(request_id="slow")).next_offset == 4
        return False

    done, before = threading.Event(), shards()
    messages = silent_after([anchor_wire.header("slow"), anchor_wire.shard()], done)
    upload = stub.UploadAnchors.future(messages)
    wait_until(stored)
    wait_until(lambda: len(shards()) == len(before), seconds=GENEROUS_SECONDS / 4)  # not its end
    done.set()
    upload.cancel()


def test_an_upload_without_a_name_is_one_stream(
    stub: pb_grpc.AnchorServiceStub, tmp_path: Path
) -> None:
    refused = wire.refusal(
        lambda: stub.UploadAnchors(iter([anchor_wire.header(), anchor_wire.shard()]))
    )
    assert refused.reason == "UPLOAD_INCOMPLETE"
    assert stub.UploadAnchors(anchor_wire.upload()).next_offset == 12
    assert not list((tmp_path / "anchors/uploads").iterdir())


class SlowReads:
    """Reads of a dataset that wait until they may go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.go = threading.Event(), threading.Event()
        self.count = 0
        read = Hdf5Column.read

        def slow(column: Hdf5Column, start: int, stop: int) -> np.ndarray:
            rows = read(column, start, stop)
            self.count += 1
            if column.name == "pos_agent":  # whose statistics need every row
                self.begun.set()
                assert self.go.wait(GENEROUS_SECONDS)
            return rows

        monkeypatch.setattr(Hdf5Column, "read", slow)


def asked(request_id: str = "") -> pb.CreateAnchorSetRequest:
    source = pb.CreateAnchorSetRequest().source
    source.dataset, source.task, source.count, source.frameskip = "a.h5", "tworoom", 11, 2
    return pb.CreateAnchorSetRequest(request_id=request_id, source=source, history=2, horizon=3)


@pytest.mark.parametrize("request_id", ["", "mine"])
def test_it_stops_between_reads_when_its_caller_has_gone(
    stub: pb_grpc.AnchorServiceStub, metrics: Metrics, monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path, request_id: str,
) -> None:  # fmt: skip
    """A set that nobody waits for is not made."""
    reads, left, leave = SlowReads(monkeypatch), threading.Event(), Call.leave
    monkeypatch.setattr(Call, "leave", lambda call: (leave(call), left.set()))
    call = stub.CreateAnchorSet.future(asked(request_id))
    assert reads.begun.wait(GENEROUS_SECONDS)
    call.cancel()
    assert left.wait(GENEROUS_SECONDS)  # the call is counted before its worker is told
    named = {
        "grpc_type": "unary", "grpc_service": "acpc.v1.AnchorService",
        "grpc_method": "CreateAnchorSet", "grpc_code": "CANCELLED",
    }  # fmt: skip
    value = metrics.registry.get_sample_value
    wait_until(lambda: value("grpc_server_handled_total", named) == 1)
    before = reads.count
    reads.go.set()
    wait_until(lambda: value("acpc_anchor_uploads") == 0)
    assert reads.count == before, "it read nothing more"
    assert call.code() is grpc.StatusCode.CANCELLED
    assert not list((tmp_path / "anchors/sets").iterdir())
    if not request_id:
        wait_until(lambda: not list((tmp_path / "anchors/uploads").iterdir()))
    # The upload's place and its folder's lock are free.
    answer = stub.CreateAnchorSet(asked(request_id), timeout=GENEROUS_SECONDS)
    assert answer.anchor_set.anchors == 11


def test_uploads_have_a_limit_of_their_own(
    stub: pb_grpc.AnchorServiceStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = SlowReads(monkeypatch)
    first = stub.CreateAnchorSet.future(asked("first"))
    assert reads.begun.wait(GENEROUS_SECONDS)
    for another in (
        lambda: stub.CreateAnchorSet(asked("second")),
        lambda: stub.UploadAnchors(anchor_wire.upload()),
    ):
        refused = wire.refusal(another)
        assert (refused.code, refused.reason) == ("RESOURCE_EXHAUSTED", "TOO_MANY_UPLOADS")
    assert not stub.ListAnchorSets(pb.ListAnchorSetsRequest()).anchor_sets, "answered meanwhile"
    reads.go.set()
    assert first.result(GENEROUS_SECONDS).anchor_set.anchors == 11


def test_a_last_step_that_does_not_end_holds_no_status(
    stub: pb_grpc.AnchorServiceStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One on a sick disk may never end."""
    monkeypatch.setattr("acpc_server.rpc.anchor.CLOSE_SECONDS", 0.1)
    begun, free, append = threading.Event(), threading.Event(), AnchorUpload.append

    def slow(*given: Any, **named: Any) -> None:
        begun.set()
        assert free.wait(GENEROUS_SECONDS)
        append(*given, **named)

    monkeypatch.setattr(AnchorUpload, "append", slow)
    call = stub.UploadAnchors.future(iter([anchor_wire.header("held"), anchor_wire.shard()]))
    assert begun.wait(GENEROUS_SECONDS)
    call.cancel()
    assert call.code() is grpc.StatusCode.CANCELLED
    free.set()
    rest = [anchor_wire.header("held")]
    wait_until(lambda: wire.refusal(lambda: stub.UploadAnchors(iter(rest))) is None)

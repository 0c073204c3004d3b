"""The door under callers that break off, stay silent, send too much, or meet a bug."""

import errno
import gc
import logging
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import ExitStack
from functools import partial
from typing import Any

import grpc
import pytest
import structlog
import wire
from acpc.v1 import anchor_service_pb2, checkpoint_service_pb2
from acpc.v1 import checkpoint_service_pb2 as pb
from acpc.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from acpc_server.access import Principal
from acpc_server.errors import NotFound, ResourceExhausted, Unauthenticated
from acpc_server.observe import Metrics, ServerHealth
from acpc_server.rpc import Call, HealthService, ReadLimit
from acpc_server.rpc.door import MAX_REFUSED
from attacks import ODD_HEADERS, PAIR
from grpc._cython.cygrpc import ExecuteBatchError
from grpc_health.v1 import health_pb2, health_pb2_grpc
from http2 import Connection
from served_door import CHECKPOINTS, Held, channel, half_open, served
from served_door import CHECKPOINTS as SERVICE
from waiting import GENEROUS_SECONDS, wait_until

pytestmark = pytest.mark.edge

HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"]
SERVING = health_pb2.HealthCheckResponse.SERVING
LIST = "/acpc.v1.CheckpointService/ListCheckpoints"
ASKED, TWO = (pb.ListCheckpointsRequest(page_size=size) for size in (1, 2))


class Checkpoints:
    def __init__(self, work: Callable[[Any, Call], object] = lambda request, call: None) -> None:
        self._work = work
        self.calls: weakref.WeakSet[Call] = weakref.WeakSet()

    def ListCheckpoints(
        self, request: pb.ListCheckpointsRequest, context: Call
    ) -> pb.ListCheckpointsResponse:
        self.calls.add(context)
        self._work(request, context)
        return pb.ListCheckpointsResponse(next_page_token=str(request.page_size))

    GetCheckpoint = LoadCheckpoint = UnloadCheckpoint = ListCheckpoints


def answered(address: str) -> str:
    with channel(address) as opened:
        answer = CheckpointServiceStub(opened).ListCheckpoints(ASKED, timeout=GENEROUS_SECONDS)
        return str(answer.next_page_token)


def counted(metrics: Metrics, event: str = "handled") -> dict[str, float]:
    samples = [sample for family in metrics.registry.collect() for sample in family.samples]
    found = [one for one in samples if one.name == f"grpc_server_{event}_total" and one.value]
    return {one.labels.get("grpc_code", ""): one.value for one in found}


def test_a_crowd_of_one_caller_delays_nobody_and_yields_to_none() -> None:
    metrics = Metrics()
    with (
        served(
            {SERVICE: Checkpoints()}, metrics=metrics, message_seconds=GENEROUS_SECONDS
        ) as address,
        half_open(address, LIST, 60) as crowd,
    ):
        wait_until(lambda: counted(metrics, "started") == {"": 60})
        for _ in range(5):
            assert answered(address) == "1"
        assert not any(call.done() for call in crowd)


def test_where_many_are_silent_the_oldest_makes_room() -> None:
    metrics, patient = Metrics(), {"grace": 0.01, "message_seconds": GENEROUS_SECONDS}
    with ExitStack() as stack:
        address = stack.enter_context(served({SERVICE: Checkpoints()}, metrics=metrics, **patient))
        oldest = stack.enter_context(half_open(address, LIST, 2))
        wait_until(lambda: counted(metrics, "started") == {"": 2})
        others = stack.enter_context(half_open(address, LIST, 2))
        wait_until(lambda: counted(metrics, "started") == {"": 4})
        assert answered(address) == "1"
        wait_until(lambda: any(call.done() for call in oldest))
        assert not any(call.done() for call in others)
        refused = wire.refusal(next(call for call in oldest if call.done()).result)
    assert (refused.code, refused.reason) == ("RESOURCE_EXHAUSTED", "MESSAGE_CROWDED_OUT")
    assert refused.retry_after


def test_a_message_that_is_late_is_told_its_limit() -> None:
    with (
        served({SERVICE: Checkpoints()}, message_seconds=0.3) as address,
        half_open(address, LIST, 1) as (call,),
    ):
        refused = wire.refusal(call.result)
    assert (refused.code, refused.reason) == ("DEADLINE_EXCEEDED", "MESSAGE_LATE")
    assert "no message for 0.3 seconds" in refused.message


def test_a_call_that_ends_without_a_message_is_the_callers_mistake() -> None:
    with served({SERVICE: Checkpoints()}) as address, channel(address) as opened:
        refused = wire.refusal(lambda: opened.stream_unary(LIST)(iter(())))
    assert (refused.code, refused.fields) == ("INVALID_ARGUMENT", ("request",))


def test_headers_that_are_no_text_stop_nothing(logged: list[logging.LogRecord]) -> None:
    """Nor do they write a traceback into the log for each.

    Some releases of gRPC end with a path that is no text, and raise it when they are stopped.
    """
    for path, fields in ODD_HEADERS:
        with served({SERVICE: Checkpoints()}) as address, Connection(address) as odd:
            odd.call(path.replace(PAIR, LIST), *fields, end=True)
            odd.call(path.replace(PAIR, LIST), *fields)
            assert answered(address) == "1", (path, fields)
    assert [record for record in logged if record.levelno >= logging.ERROR] == []


def test_a_caller_that_has_left_is_no_news(logged: list[logging.LogRecord]) -> None:
    """GRPC tells of a status that it could not send; that is no fault of the server."""
    with served({SERVICE: Checkpoints()}):
        log = logging.getLogger("grpc._cython.cygrpc")
        for error in (ExecuteBatchError("left"), OSError("a fault")):
            try:
                raise error
            except (ExecuteBatchError, OSError):
                log.exception("Failed sending error status from server")
    told = [record.exc_info[1] for record in logged if record.exc_info]
    assert [str(error) for error in told] == ["a fault"]


def test_a_stop_without_grace_cuts_calls_off_and_counts_their_end() -> None:
    metrics, work = Metrics(), Held()
    with ExitStack() as stack:
        with served({SERVICE: work}, metrics=metrics) as address:
            opened = stack.enter_context(channel(address))
            stub = CheckpointServiceStub(opened)
            worked = stub.ListCheckpoints.future(TWO)
            (silent,) = stack.enter_context(half_open(address, LIST, 1))
            wait_until(lambda: work.begun.is_set() and counted(metrics, "started") == {"": 2})
        for call in (worked, silent):
            assert call.exception(GENEROUS_SECONDS).code().name in ("CANCELLED", "UNAVAILABLE")
        assert "door" not in {thread.name for thread in threading.enumerate()}
        found = counted(metrics)
        # The latter: of a call without a message.
        assert found.keys() <= {"CANCELLED", "INVALID_ARGUMENT"}
        assert sum(found.values()) == 2
        work.go_on.set()


def test_a_method_without_a_servicer_is_unimplemented() -> None:
    """A newer release of a standard service may bring one; the others are served all the same."""

    class Older:
        async def Check(self, request: object, context: Call) -> object:
            return health_pb2.HealthCheckResponse(status=SERVING)

    with served({HEALTH: Older()}) as address, channel(address) as opened:
        stub = health_pb2_grpc.HealthStub(opened)
        asked = health_pb2.HealthCheckRequest()
        assert stub.Check(asked, timeout=GENEROUS_SECONDS).status == SERVING
        refused = wire.refusal(lambda: next(stub.Watch(asked, timeout=GENEROUS_SECONDS)))
    assert refused.code == "UNIMPLEMENTED"


def test_messages_that_are_worked_on_leave_no_memory_for_others() -> None:
    """Every message counts in bytes until its call has ended."""
    work = Held()
    large = pb.ListCheckpointsRequest(page_size=2, page_token="x" * 1000)
    with (
        served({SERVICE: work}, held_bytes=1000) as address,
        channel(address) as opened,
    ):
        stub = CheckpointServiceStub(opened)
        held = stub.ListCheckpoints.future(large, timeout=GENEROUS_SECONDS)
        assert work.begun.wait(GENEROUS_SECONDS)
        refused = wire.refusal(lambda: answered(address))
        assert (refused.code, refused.reason) == ("RESOURCE_EXHAUSTED", "MEMORY_BUSY")
        assert refused.retry_after
        work.go_on.set()
        held.result()
        wait_until(lambda: wire.refusal(lambda: answered(address)) is None)


def test_a_caller_over_its_limit_hears_of_it_after_a_pause_and_others_do_not_wait() -> None:
    """The longer the more it asks, so that one who asks again at once keeps nobody busy."""
    work, many = Held(), 504
    with (
        served({SERVICE: work}, places={"calls": 4}, threads=8) as address,
        channel(address) as opened,
    ):
        ask = partial(CheckpointServiceStub(opened).ListCheckpoints.future, TWO)
        held = ask(timeout=GENEROUS_SECONDS)
        assert work.begun.wait(GENEROUS_SECONDS)
        started = time.monotonic()
        calls = [ask(timeout=GENEROUS_SECONDS) for _ in range(many)]
        assert answered(address) == "1"
        wait_until(lambda: sum(call.done() for call in calls) >= 500)
        assert time.monotonic() - started >= 500 / MAX_REFUSED
        refused = [wire.refusal(call.result) for call in calls if call.done()]
        assert {(r.code, r.reason) for r in refused} == {("RESOURCE_EXHAUSTED", "TOO_MANY_CALLS")}
        work.go_on.set()
        held.result()


@pytest.mark.parametrize("bug", [lambda *_: sys.exit(3), lambda *_: 1 / 0])
def test_a_bug_ends_its_call_and_nothing_else(bug: Callable[..., object]) -> None:
    def work(request: pb.ListCheckpointsRequest, call: Call) -> None:
        if request.page_size == 2:
            bug()

    with served({SERVICE: Checkpoints(work)}, threads=1) as address, channel(address) as opened:
        stub = CheckpointServiceStub(opened)
        for _ in range(3):
            refused = wire.refusal(lambda: stub.ListCheckpoints(TWO, timeout=GENEROUS_SECONDS))
            assert refused.code == "INTERNAL"
        assert answered(address) == "1"


def test_ended_calls_leave_nothing_for_the_garbage_collector() -> None:
    """It counts a call until it is freed, and rejects others for those that are not."""

    def work(request: pb.ListCheckpointsRequest, call: Call) -> None:
        if request.page_size == 2:
            raise NotFound("no such page")

    checkpoints = Checkpoints(work)
    with served({SERVICE: checkpoints}) as address, channel(address) as opened:
        stub = CheckpointServiceStub(opened)
        stub.ListCheckpoints(ASKED)
        gc.disable()
        try:
            for _ in range(20):
                stub.ListCheckpoints(ASKED)
                with pytest.raises(grpc.RpcError):
                    stub.ListCheckpoints(TWO)
            wait_until(lambda: len(checkpoints.calls) == 0)
        finally:
            gc.enable()


@pytest.mark.parametrize(
    "error",
    [MemoryError(), OSError(errno.EMFILE, "files"), RuntimeError("can't start new thread")],
)
def test_a_shortage_of_the_host_is_told_as_one(error: Exception) -> None:
    class Short(HealthService):
        async def Check(self, *_: object) -> object:
            raise error

    with served({HEALTH: Short(ServerHealth())}) as address, channel(address) as caller:
        check = health_pb2_grpc.HealthStub(caller).Check
        told = wire.refusal(lambda: check(health_pb2.HealthCheckRequest()))
    assert (told.code, told.reason) == ("RESOURCE_EXHAUSTED", "HOST_SHORTAGE")
    assert told.retry_after


@pytest.mark.parametrize(("leaves", "code"), [(False, "DEADLINE_EXCEEDED"), (True, "CANCELLED")])
def test_a_missed_deadline_is_told_from_a_caller_that_left(leaves: bool, code: str) -> None:
    metrics, work = Metrics(), Held()
    with served({SERVICE: work}, metrics=metrics) as address, channel(address) as opened:
        seconds = GENEROUS_SECONDS if leaves else 0.3
        asked = CheckpointServiceStub(opened).ListCheckpoints.future(TWO, timeout=seconds)
        if leaves:
            wait_until(work.begun.is_set, "the call did not arrive")
            asked.cancel()
        else:
            assert asked.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        wait_until(lambda: counted(metrics), "the call did not end")
        work.go_on.set()
    assert counted(metrics) == {code: 1}


def test_a_call_that_would_be_rejected_is_before_its_message_is_read() -> None:
    def full(*_: object) -> None:
        raise ResourceExhausted("full", reason="SERVER_BUSY", retry_after=1.0)

    with (
        served({SERVICE: Held()}, check=full) as address,
        half_open(address, LIST, 1) as (call,),
    ):
        assert wire.refusal(call.result).reason == "SERVER_BUSY"


ANCHORS = anchor_service_pb2.DESCRIPTOR.services_by_name["AnchorService"]
UPLOAD = "/acpc.v1.AnchorService/UploadAnchors"
Lines = list[MutableMapping[str, Any]]


@pytest.fixture
def lines() -> Iterator[Lines]:
    with structlog.testing.capture_logs() as found:
        yield found


def named(lines: Lines, event: str) -> list[tuple[str, str]]:
    return [(line["code"], line["principal"]) for line in lines if line["event"] == event]


class Anchors:
    async def UploadAnchors(self, call: Call) -> anchor_service_pb2.UploadAnchorsResponse:
        async for _ in call.messages(ReadLimit(GENEROUS_SECONDS)):
            pass
        return anchor_service_pb2.UploadAnchorsResponse()


def says(*answers: Principal | Exception) -> Callable[..., Principal]:
    left = list(answers)

    def admit(*_: object) -> Principal:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    return admit


def uploaded(admit: Callable[..., Principal]) -> str:
    with served({ANCHORS: Anchors()}, identify=admit) as address, channel(address) as opened:
        stream = opened.stream_stream(UPLOAD)
        refused = wire.refusal(lambda: list(stream(iter([b""]), timeout=GENEROUS_SECONDS)))
    return refused.code


@pytest.mark.parametrize(
    ("then", "known"),
    [
        ([Principal("ci"), Unauthenticated("over")], ["ci"]),
        ([Principal("ci"), Principal("someone")], ["ci"]),
        ([Unauthenticated("who?")], []),
    ],
    ids=["its credentials end", "they name another", "nobody is known"],
)
def test_an_upload_that_ends_is_logged_as_its_callers(
    lines: Lines, then: list[Principal | Exception], known: list[str]
) -> None:
    assert uploaded(says(*then)) == "UNAUTHENTICATED"
    assert named(lines, "rpc") == [("UNAUTHENTICATED", name) for name in known]
    assert named(lines, "access") == []


def test_what_is_done_after_the_caller_has_left_is_logged(lines: Lines) -> None:
    work = Held()
    with (
        served({CHECKPOINTS: work}, identify=says(Principal("ci"))) as address,
        channel(address) as opened,
    ):
        asked = checkpoint_service_pb2.LoadCheckpointRequest(request_id="two\nlines")
        future = CheckpointServiceStub(opened).LoadCheckpoint.future(asked)
        try:
            assert work.begun.wait(GENEROUS_SECONDS)
            future.cancel()
            wait_until(lambda: named(lines, "access") == [("CANCELLED", "ci")])
        finally:
            work.go_on.set()
        wait_until(lambda: named(lines, "access") == [("CANCELLED", "ci"), ("OK", "ci")])
    assert {line["request_id"] for line in lines if line["event"] == "access"} == {r"'two\nlines'"}
    assert future.code() is grpc.StatusCode.CANCELLED

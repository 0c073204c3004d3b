"""The door under callers that break off, stay silent, send too much, or meet a bug."""

import errno
import gc
import logging
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import grpc
import pytest
import wire
from acpc.v1 import checkpoint_service_pb2 as pb
from acpc.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from acpc_server.errors import NotFound, ResourceExhausted
from acpc_server.observe import Metrics
from acpc_server.rpc import Call, HealthService, Reflection
from acpc_server.rpc.door import MAX_REFUSED
from attacks import ODD_HEADERS, PAIR
from grpc._cython.cygrpc import ExecuteBatchError
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub
from http2 import Connection, message
from served_door import CHECKPOINTS as SERVICE
from served_door import Held, channel, half_open, served
from waiting import GENEROUS_SECONDS, wait_until

pytestmark = pytest.mark.edge

HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"]
REFLECTION = reflection_pb2.DESCRIPTOR.services_by_name["ServerReflection"]
SERVING = health_pb2.HealthCheckResponse.SERVING
LIST = "/acpc.v1.CheckpointService/ListCheckpoints"
ASKED = pb.ListCheckpointsRequest(page_size=1)


class Checkpoints:
    """Answers with what ``work`` makes of the request."""

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
    """What another caller's call is answered."""
    with channel(address) as opened:
        answer = CheckpointServiceStub(opened).ListCheckpoints(ASKED, timeout=GENEROUS_SECONDS)
        return str(answer.next_page_token)


def test_calls_without_a_message_keep_nobody_waiting() -> None:
    health = HealthService()
    health.tell({"": True})
    with ExitStack() as open_:
        address = open_.enter_context(
            served({SERVICE: Checkpoints(), HEALTH: health}, threads=2, slots=4)
        )
        for path in (LIST, "/grpc.health.v1.Health/Check"):
            open_.enter_context(half_open(address, path, 60))
        for _ in range(3):
            assert answered(address) == "1"
            with channel(address) as other:
                probe = health_pb2_grpc.HealthStub(other).Check(
                    health_pb2.HealthCheckRequest(), timeout=GENEROUS_SECONDS
                )
                assert probe.status == probe.SERVING


def test_a_slow_caller_does_not_yield_to_the_crowd_of_another() -> None:
    with (
        served({SERVICE: Checkpoints()}, grace=0.01, message_seconds=GENEROUS_SECONDS) as address,
        half_open(address, LIST, 60) as crowd,
        half_open(address, LIST, 1) as (slow,),
    ):
        for _ in range(5):
            assert answered(address) == "1"
        wait_until(lambda: any(call.done() for call in crowd))
        assert not slow.done()
        refused = wire.refusal(next(call for call in crowd if call.done()).result)
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


@pytest.mark.parametrize(("path", "fields"), ODD_HEADERS)
def test_headers_that_are_no_text_stop_nothing(
    path: str, fields: tuple[tuple[bytes, bytes], ...], logged: list[logging.LogRecord]
) -> None:
    """Nor do they write a traceback into the log for each."""
    with served({SERVICE: Checkpoints()}) as address, Connection(address) as odd:
        odd.call(path.replace(PAIR, LIST), *fields, end=True)
        odd.call(path.replace(PAIR, LIST), *fields)
        assert answered(address) == "1"
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


def test_the_door_stops_after_a_path_that_is_no_text() -> None:
    """Some releases of gRPC end with such a path, and raise it again when they are stopped."""
    with served({SERVICE: Checkpoints()}) as address, Connection(address) as odd:
        odd.call("/\udcff\udcfe/x", end=True)
        odd.closed.wait(0.1)


def test_a_stop_without_grace_cuts_calls_off_and_counts_their_end() -> None:
    metrics, work = Metrics(), Held()

    def counted(event: str, **labels: str) -> float | None:
        named = {"grpc_service": SERVICE.full_name, "grpc_method": "ListCheckpoints"}
        given = {"grpc_type": "unary", **named, **labels}
        return metrics.registry.get_sample_value(f"grpc_server_{event}_total", given)

    with ExitStack() as stack:
        with served({SERVICE: work}, metrics=metrics) as address:
            opened = stack.enter_context(channel(address))
            stub = CheckpointServiceStub(opened)
            worked = stub.ListCheckpoints.future(pb.ListCheckpointsRequest(page_size=2))
            (silent,) = stack.enter_context(half_open(address, LIST, 1))
            wait_until(lambda: work.begun.is_set() and counted("started") == 2)
        for call in (worked, silent):
            assert call.exception(GENEROUS_SECONDS).code().name in ("CANCELLED", "UNAVAILABLE")
        assert "door" not in {thread.name for thread in threading.enumerate()}
        ends = ("CANCELLED", "INVALID_ARGUMENT")  # the latter: of a call without a message
        assert sum(counted("handled", grpc_code=code) or 0 for code in ends) == 2
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


def test_messages_that_lack_a_byte_give_way_to_others() -> None:
    """As many as have a slot are taken in; who waits for a slot gets it after the grace."""
    body = message(bytes(2**20 - 1), length=2**20)
    with (
        served({SERVICE: Checkpoints()}, slots=2, grace=0.1, message_seconds=60.0) as address,
        ExitStack() as open_,
    ):
        attackers = [open_.enter_context(Connection(address)) for _ in range(6)]
        senders = [
            threading.Thread(
                target=lambda one: one.body(one.call(LIST), body, seconds=3.0), args=(attacker,)
            )
            for attacker in attackers
        ]
        for sender in senders:
            sender.start()
        for _ in range(3):
            assert answered(address) == "1"
        for sender in senders:
            sender.join()
        assert answered(address) == "1"


def test_silent_streams_take_no_worker_and_have_a_limit() -> None:
    described = Reflection(["acpc.v1.CheckpointService"])
    go_on = threading.Event()

    def silent() -> Iterator[Any]:
        yield reflection_pb2.ServerReflectionRequest(list_services="")
        go_on.wait(GENEROUS_SECONDS)

    with (
        served(
            {SERVICE: Checkpoints(), REFLECTION: described}, threads=1, places={"streams": 40}
        ) as address,
        channel(address) as opened,
    ):
        stub = ServerReflectionStub(opened)
        streams = [stub.ServerReflectionInfo(silent()) for _ in range(20)]
        for stream in streams:
            assert next(stream).HasField("list_services_response")
        assert answered(address) == "1"
        more = [stub.ServerReflectionInfo(silent()) for _ in range(40)]
        codes = {wire.refusal(lambda stream=stream: next(stream)) for stream in more}
        assert {(r.code, r.reason) for r in codes if r} == {
            ("RESOURCE_EXHAUSTED", "TOO_MANY_STREAMS")
        }
        with channel(address) as other:  # one caller does not take the last places
            assert next(ServerReflectionStub(other).ServerReflectionInfo(silent()))
        go_on.set()


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
    held = Held()
    with (
        served({SERVICE: held}, places={"calls": 4}, threads=8) as address,
        channel(address) as opened,
    ):
        stub = CheckpointServiceStub(opened)
        asked = pb.ListCheckpointsRequest(page_size=2)
        many = [stub.ListCheckpoints.future(asked, timeout=GENEROUS_SECONDS) for _ in range(6)]
        assert held.begun.wait(GENEROUS_SECONDS)
        assert answered(address) == "1"
        wait_until(lambda: sum(call.done() for call in many) == 3)
        refused = [wire.refusal(call.result) for call in many if call.done()]
        assert {(r.code, r.reason) for r in refused} == {("RESOURCE_EXHAUSTED", "TOO_MANY_CALLS")}
        held.go_on.set()


def test_the_more_calls_are_over_a_limit_the_longer_each_waits_to_hear_of_it() -> None:
    """So that a caller who asks again at once, however often, takes little of the event loop."""
    work = Held()
    with (
        served({SERVICE: work}, places={"calls": 4}, threads=8) as address,
        channel(address) as opened,
    ):
        ask = CheckpointServiceStub(opened).ListCheckpoints
        two = pb.ListCheckpointsRequest(page_size=2)
        held = ask.future(two, timeout=GENEROUS_SECONDS)
        assert work.begun.wait(GENEROUS_SECONDS)
        started = time.monotonic()
        many = [ask.future(two, timeout=GENEROUS_SECONDS) for _ in range(504)]
        wait_until(lambda: sum(call.done() for call in many) >= 500)
        assert time.monotonic() - started >= 500 / MAX_REFUSED
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
            refused = wire.refusal(
                lambda: stub.ListCheckpoints(
                    pb.ListCheckpointsRequest(page_size=2), timeout=GENEROUS_SECONDS
                )
            )
            assert refused.code == "INTERNAL"
        assert answered(address) == "1"


def test_who_leaves_is_known_to_the_worker() -> None:
    left, begun = threading.Event(), threading.Event()

    def work(request: pb.ListCheckpointsRequest, call: Call) -> None:
        begun.set()
        wait_until(lambda: not call.active)
        left.set()

    with served({SERVICE: Checkpoints(work)}, threads=1) as address, channel(address) as opened:
        call = CheckpointServiceStub(opened).ListCheckpoints.future(ASKED)
        assert begun.wait(GENEROUS_SECONDS)
        call.cancel()
        assert left.wait(GENEROUS_SECONDS)


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
                    stub.ListCheckpoints(pb.ListCheckpointsRequest(page_size=2))
            wait_until(lambda: len(checkpoints.calls) == 0)
        finally:
            gc.enable()


@pytest.mark.parametrize(
    "error",
    [MemoryError(), OSError(errno.EMFILE, "files"), RuntimeError("can't start new thread")],
)
def test_a_shortage_of_the_host_is_told_as_one(error: Exception) -> None:
    """The call is rejected, to be tried again; it is no bug."""

    class Short(HealthService):
        async def Check(self, *_: object) -> object:
            raise error

    with served({HEALTH: Short()}) as address, channel(address) as caller:
        check = health_pb2_grpc.HealthStub(caller).Check
        told = wire.refusal(lambda: check(health_pb2.HealthCheckRequest()))
    assert (told.code, told.reason) == ("RESOURCE_EXHAUSTED", "HOST_SHORTAGE")
    assert told.retry_after


@pytest.mark.parametrize(("leaves", "code"), [(False, "DEADLINE_EXCEEDED"), (True, "CANCELLED")])
def test_a_missed_deadline_is_told_from_a_caller_that_left(leaves: bool, code: str) -> None:
    metrics, work = Metrics(), Held()

    def codes() -> dict[str, float]:
        samples = [s for family in metrics.registry.collect() for s in family.samples]
        handled = [s for s in samples if s.name == "grpc_server_handled_total"]
        return {sample.labels["grpc_code"]: sample.value for sample in handled}

    with served({SERVICE: work}, metrics=metrics) as address, channel(address) as opened:
        two = pb.ListCheckpointsRequest(page_size=2)
        seconds = GENEROUS_SECONDS if leaves else 0.3
        asked = CheckpointServiceStub(opened).ListCheckpoints.future(two, timeout=seconds)
        if leaves:
            wait_until(work.begun.is_set, "the call did not arrive")
            asked.cancel()
        else:
            assert asked.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        wait_until(codes, "the call did not end")
        work.go_on.set()
    assert codes() == {code: 1}


def test_a_call_that_would_be_rejected_is_before_its_message_is_read() -> None:
    def full(call: Call) -> None:
        raise ResourceExhausted("full", reason="SERVER_BUSY", retry_after=1.0)

    with (
        served({SERVICE: Held()}, check=full) as address,
        half_open(address, LIST, 1) as (call,),
    ):
        assert wire.refusal(call.result).reason == "SERVER_BUSY"

"""Lines of calls whose credentials end, of callers that leave, and of callers nobody knows."""

from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

import grpc
import pytest
import structlog
import wire
from acpc.v1 import anchor_service_pb2, checkpoint_service_pb2
from acpc.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from acpc_server.access import Principal, Role
from acpc_server.errors import Unauthenticated
from acpc_server.rpc import Call, ReadLimit
from served_door import CHECKPOINTS, Held, channel, served
from waiting import GENEROUS_SECONDS, wait_until

ANCHORS = anchor_service_pb2.DESCRIPTOR.services_by_name["AnchorService"]
UPLOAD = "/acpc.v1.AnchorService/UploadAnchors"
Lines = list[MutableMapping[str, Any]]


@pytest.fixture
def lines() -> Iterator[Lines]:
    with structlog.testing.capture_logs() as found:
        yield found


def named(lines: Lines, event: str) -> list[tuple[str, str]]:
    """Code and principal of the lines of an event."""
    return [(line["code"], line["principal"]) for line in lines if line["event"] == event]


class Anchors:
    """Takes uploads and does nothing with them."""

    async def UploadAnchors(self, call: Call) -> anchor_service_pb2.UploadAnchorsResponse:
        async for _ in call.messages(ReadLimit(GENEROUS_SECONDS)):
            pass
        return anchor_service_pb2.UploadAnchorsResponse()


def says(*answers: Principal | Exception) -> Callable[..., Principal]:
    """Admits as it is told, call after call."""
    left = list(answers)

    def admit(*_: object) -> Principal:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    return admit


def uploaded(admit: Callable[..., Principal]) -> str:
    """Code of an upload of one message."""
    with served({ANCHORS: Anchors()}, identify=admit) as address, channel(address) as opened:
        stream = opened.stream_stream(UPLOAD)
        refused = wire.refusal(lambda: list(stream(iter([b""]), timeout=GENEROUS_SECONDS)))
    return refused.code


CI, READER = Principal("ci"), Principal("ci", Role.READ, "0a1b")
Found = list[tuple[str, str]]
# What is answered of who calls, time after time; and the lines of calls and of access then.
CASES: dict[str, tuple[list[Principal | Exception], Found, Found]] = {
    "its credentials end": ([CI, Unauthenticated("over")], [("UNAUTHENTICATED", "ci")], []),
    "they name another": ([CI, Principal("someone")], [("UNAUTHENTICATED", "ci")], []),
    "it is denied": ([READER], [("PERMISSION_DENIED", "ci")], [("PERMISSION_DENIED", "ci")]),
    "nobody is known": ([Unauthenticated("who?")], [], []),
}


@pytest.mark.parametrize("case", CASES)
def test_an_upload_that_ends_is_logged_as_its_callers(lines: Lines, case: str) -> None:
    told, calls, denied = CASES[case]
    code = "PERMISSION_DENIED" if denied else "UNAUTHENTICATED"
    assert uploaded(says(*told)) == code
    assert (named(lines, "rpc"), named(lines, "access")) == (calls, denied)
    assert [line["credential"] for line in lines if line.get("credential")] == (
        ["0a1b"] * 2 if denied else []
    )


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

"""Servers that refuse, break off, or are away: a table of faults over both clients."""

import contextlib
import math
import time
import traceback
import uuid
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import grpc
import pytest
from acpc.contract import GaussianNoise
from acpc.v1 import scoring_service_pb2 as pb
from acpc_client import errors
from acpc_client.errors import (
    AcpcError,
    ArgumentError,
    ClientClosed,
    DeadlineExceeded,
    FieldViolation,
    Internal,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    ServerAway,
    Unauthenticated,
    Unavailable,
)
from acpc_client.retries import Absence, Contact, RetryPolicy, Watch, resumed
from acpc_client.sync.client import AcpcClient
from client_fixtures import BLOCKS, HISTORY
from client_messages import operation, retry_info, score_response, status
from google.rpc import error_details_pb2, status_pb2

pytestmark = pytest.mark.edge

NAME = "operations/1"
DONE = operation(NAME, 4, response=score_response(pb.OUTCOME_PASSED))
NOISE = GaussianNoise(0.08)
Code = grpc.StatusCode


def of(name: str, words: str = "why", retry: float | None = None) -> status_pb2.Status:
    """As a server refuses: gRPC's own errors name no domain."""
    ours = error_details_pb2.ErrorInfo(domain="acpc.v1")
    return status(Code[name], words, ours, *([] if retry is None else [retry_info(retry)]))


GONE, FULL = of("UNAVAILABLE", "draining"), of("RESOURCE_EXHAUSTED", "queued", 0.3)
BROKEN = of("UNAVAILABLE", "connection lost")
QUESTIONS = {
    "GetCheckpoint": lambda client: client.checkpoints.get("a"),
    "GetOperation": lambda client: client.operations.get("operations/none"),
    "GetAnchorSet": lambda client: client.anchors.get("0" * 64),
    "ComparePair": lambda client: client.compare_pair("a", HISTORY, BLOCKS, perturbations=NOISE),
    "ScoreCheckpoint": lambda client: client.score_checkpoint("a", "f" * 64, NOISE),
    "DeleteOperation": lambda client: client.operations.delete(NAME),
    "WatchOperation": lambda client: client.operations.watch(NAME),
}
# A method, how its calls are refused, options of the client, the classes the error may have (none:
# it is answered in the end), how many calls are sent, all alike (0: any number), and words.
Fault = tuple[str, list[status_pb2.Status], dict[str, Any], tuple[type[AcpcError], ...], int, str]
EITHER = (ServerAway, ResourceExhausted)
FAULTS: list[Fault] = [
    *(
        ("GetCheckpoint", [of(code.name)] * 3, {}, (getattr(errors, kind),), 0, "why")
        for code in Code if code is not Code.OK
        for kind in [code.name.title().replace("_", "")]
    ),
    ("ComparePair", [GONE] * 2, {}, (), 3, ""),
    ("ComparePair", [of("RESOURCE_EXHAUSTED", retry=0.01)] * 2, {}, (), 3, ""),
    ("GetCheckpoint", [status(Code.CANCELLED, "CANCELLED")], {}, (), 2, ""),  # it stops
    ("GetCheckpoint", [GONE] * 5, {}, (Unavailable,), 3, "draining"),
    ("GetCheckpoint", [of("RESOURCE_EXHAUSTED")] * 5, {}, (ResourceExhausted,), 1, "why"),
    ("GetCheckpoint", [of("INTERNAL", "bug")] * 5, {}, (Internal,), 1, "bug"),
    ("GetCheckpoint", [status(Code.DEADLINE_EXCEEDED, "")] * 5, {}, (DeadlineExceeded,), 1,
     "ACPC_TIMEOUT"),
    ("GetCheckpoint", [of("RESOURCE_EXHAUSTED", retry=3600)], {"timeout": 1000},
     (ResourceExhausted,), 1, "why"),
    ("DeleteOperation", [GONE], {}, (Unavailable,), 1, "draining"),
    ("ScoreCheckpoint", [GONE] * 7, {}, (), 8, ""),
    *((method, [FULL] * 9, {"patience": patience}, EITHER, most, "queued")
      for method in ("ScoreCheckpoint", "WatchOperation")
      for patience, most in ((0, 1), (0.1, 2))),
    ("WatchOperation", [of("UNAUTHENTICATED")], {}, (Unauthenticated,), 1, NAME),
    ("WatchOperation", [of("NOT_FOUND")], {}, (NotFound,), 1, NAME),
]  # fmt: skip


@pytest.mark.parametrize(("method", "refused", "options", "kinds", "times", "words"), FAULTS)
def test_a_fault_is_waited_for_or_becomes_one_error(
    method: str, refused: list[status_pb2.Status], options: dict[str, Any],
    kinds: tuple[type[AcpcError], ...], times: int, words: str, side: Any,
) -> None:  # fmt: skip
    told: list[Any] = []
    side.server.refusals[method].extend(refused)
    ask, options = side.ask, {"on_away": told.append, **options}
    if method == "WatchOperation":
        ask = side.collect
    if not kinds:
        answer = ask(QUESTIONS[method], **options)
        assert len(told) == (2 if method == "ScoreCheckpoint" else 0), "that it is away, and back"
    else:
        with pytest.raises(kinds) as caught:
            ask(QUESTIONS[method], **options)
        assert type(caught.value) in kinds and words in str(caught.value)
        assert kinds == EITHER or Code[caught.value.code].value[0] == refused[0].code
    sent = side.server.requests[method]
    assert len(sent) == (times or len(sent)) or (kinds == EITHER and len(sent) < times)
    assert all(request == sent[0] for request in sent)
    if method == "ComparePair":
        assert answer.request_id == sent[0].request_id
        assert uuid.UUID(answer.request_id).version == 4


def test_a_long_absence_is_told_in_two_lines(side: Any) -> None:
    told: list[str] = []
    for method in ("WatchOperation", "GetOperation"):
        side.server.refusals[method].extend([of("UNAVAILABLE", "Connection refused (111)")] * 6)
    side.server.script.append(DONE)
    side.collect(
        lambda client: client.operations.watch(NAME, patience=60),
        on_away=lambda away: told.append(away.message if away else "back"),
    )
    away, back = told
    assert "is away (connection refused)" in away or "no server answers" in away
    assert "1 min" in away
    assert back == "back"


WATCHES = {  # refused streams, what is answered (a number is progress), what is seen, and streams
    "every change once": ([], [0, 1, 1, DONE], [0, 1, 4], 1),
    "reconnects": ([], [1, BROKEN, 1, DONE], [1, 4], 2),
    "goes on where streams keep breaking": ([BROKEN] * 2, [1, BROKEN, 2, DONE], [1, 2, 4], 4),
}


@pytest.mark.parametrize("case", WATCHES)
def test_watch_yields_changes_over_streams_that_break(case: str, side: Any) -> None:
    refused, script, seen, streams = WATCHES[case]
    side.server.refusals["WatchOperation"].extend(refused)
    side.server.script.extend(operation(NAME, x) if isinstance(x, int) else x for x in script)
    watched = side.collect(QUESTIONS["WatchOperation"])
    assert watched[-1].done and [item.progress.completed for item in watched] == seen
    assert len(side.server.requests["WatchOperation"]) == streams


def test_who_has_seen_a_server_waits_for_it_the_longer(side: Any) -> None:
    """Also where the watch is the first call, and gRPC alone says that it broke."""
    told: list[Any] = []
    lost = status(Code.UNAVAILABLE, "ipv4:127.0.0.1:1: Socket closed")
    side.server.script.extend([operation(NAME, 1), *[lost] * 3, DONE])
    assert side.collect(QUESTIONS["WatchOperation"], on_away=told.append)[-1].done
    away, back = told
    assert "is away (socket closed)" in away.message and "up to 10 min" in away.message
    assert back is None


def test_the_end_of_the_wait_says_that_the_job_goes_on(side: Any) -> None:
    side.server.stalled.set()
    with pytest.raises(DeadlineExceeded, match=r"operations/1 .* goes on at the server"):
        side.collect(lambda client: client.operations.watch(NAME, timeout=0.3))


def test_one_deadline_covers_all_attempts(side: Any) -> None:
    side.server.refusals["GetCheckpoint"].append(of("RESOURCE_EXHAUSTED", retry=0.4))
    side.ask(lambda client: client.checkpoints.get("a", timeout=10))
    first, second = side.server.deadlines["GetCheckpoint"]
    assert first is not None
    # gRPC rounds deadlines on the wire by up to three per cent.
    assert second <= first - 0.1


@pytest.mark.parametrize("method", ["GetCheckpoint", "GetOperation", "GetAnchorSet"])
@pytest.mark.parametrize("there", [True, False])
def test_a_traceback_shows_our_error_alone(
    side: Any, unused_target: str, method: str, there: bool
) -> None:
    """Refused, or not reached: gRPC's error stands neither above ours as cause nor as context."""
    side.server.refusals[method].append(of("NOT_FOUND"))
    asked = side if there else type(side)(unused_target)
    with pytest.raises(AcpcError) as caught:
        asked.ask(QUESTIONS[method])
    shown = "".join(traceback.format_exception(caught.value))
    assert shown.count("Traceback (most recent call last)") == 1
    assert "RpcError" not in shown


def test_details_of_the_server_are_fields_of_the_error(side: Any) -> None:
    violation = error_details_pb2.BadRequest.FieldViolation(field="history", description="no")
    details = [
        error_details_pb2.ErrorInfo(reason="INVALID_FIELD", domain="acpc.v1"),
        error_details_pb2.BadRequest(field_violations=[violation]),
        retry_info(2.5),
    ]
    refused = status(Code.INVALID_ARGUMENT, "history: no", *details)
    side.server.refusals["LoadCheckpoint"].append(refused)
    with pytest.raises(InvalidArgument) as caught:
        side.ask(lambda client: client.checkpoints.load("a", request_id="mine"))
    error = caught.value
    assert (error.reason, error.domain, error.request_id) == ("INVALID_FIELD", "acpc.v1", "mine")
    assert error.violations == (FieldViolation("history", "no"),)
    assert error.retry_after == pytest.approx(2.5)


def test_mangled_details_leave_code_and_message() -> None:
    class Mangled(grpc.RpcError):
        def code(self) -> grpc.StatusCode:
            return Code.RESOURCE_EXHAUSTED

        def details(self) -> str:
            return "full"

        def trailing_metadata(self) -> Any:
            return (("grpc-status-details-bin", b"\xff\xff\xff"),)

    error = errors.from_rpc_error(Mangled(), "mine")
    assert isinstance(error, ResourceExhausted)
    assert (error.message, error.retry_after, error.request_id) == ("full", None, "mine")
    future = errors.from_status(status_pb2.Status(code=99, message="new"))
    assert type(future) is errors.Unknown, "a status of the future"


def test_nobody_at_the_target(side_of: Any, unused_target: str) -> None:
    with pytest.raises(ServerAway) as caught:
        side_of(unused_target).ask(QUESTIONS["GetCheckpoint"], timeout=5)
    assert caught.value.message == (
        f"no server answers at {unused_target} (connection refused); start one there (acpc-server "
        "serve --checkpoint-root DIR --dataset-root DIR), or name another (--target HOST:PORT, "
        "ACPC_TARGET)"
    )


def test_another_program_on_the_port_is_no_server(side_of: Any) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as other:
        Thread(target=other.serve_forever, daemon=True).start()
        try:
            with pytest.raises(ServerAway, match=r"no server answers at .* start one") as caught:
                side_of(f"127.0.0.1:{other.server_port}").ask(QUESTIONS["GetCheckpoint"])
        finally:
            other.shutdown()
    assert "HTTP/2" in caught.value.why


def test_a_closed_client_says_so(target: str) -> None:
    client = AcpcClient(target)
    client.close()
    with pytest.raises(ClientClosed, match="GetCheckpoint") as caught:
        client.checkpoints.get("a")
    assert caught.value.reason == ""


@pytest.mark.parametrize("name", ["attempts", "patience"])
@pytest.mark.parametrize("number", [math.nan, -math.inf, -1, "3"])
def test_a_policy_of_no_time_is_an_argument_error(name: str, number: float) -> None:
    of = partial(AcpcClient, "localhost:1") if name == "patience" else RetryPolicy
    with pytest.raises(ArgumentError) as raised:
        of(**{name: number})
    assert raised.value.field == name


def waits(absence: Absence, error: AcpcError, most: int = 200) -> list[float]:
    """The waits after one failure after another, until the error is raised."""
    found: list[float] = []
    with contextlib.suppress(AcpcError):
        while len(found) < most:
            found.append(absence.failed(error))
    return found


def test_waits_grow_to_a_second_and_have_jitter() -> None:
    found = [waits(Absence(Contact("here"), 9), Unavailable("x")) for _ in range(20)]
    for wait, base in zip(zip(*found, strict=True), [0.1, 0.2, 0.4, 0.8, 1, 1, 1, 1], strict=True):
        assert len(set(wait)) > 1
        assert all(base <= one <= 1.2 * base for one in wait)
    asked = Absence(Contact("here"), 2).failed(ResourceExhausted("x", retry_after=7.0))
    assert asked >= 7.0, "a server is never asked sooner than it said"
    assert waits(Absence(Contact("here"), 9, timeout=0.15), Unavailable("x"))[1:] == []


def test_streams_of_an_upload_go_on_after_more_errors_and_for_longer() -> None:
    def upload(attempts: int = 5) -> Absence:
        return Absence(Contact("here"), RetryPolicy(attempts).of_uploads, again=resumed)

    elsewhere = errors.FailedPrecondition("goes on elsewhere", reason="UPLOAD_OFFSET")
    for error in (Unavailable("x"), DeadlineExceeded("x"), errors.Aborted("x"), elsewhere):
        assert 90 < sum(waits(upload(), error)) < 120  # longer than a server takes to start again
        assert waits(upload(1), error) == []
    assert waits(upload(), Internal("x")) == []


def test_who_is_away_is_looked_for_until_the_patience_is_over() -> None:
    told: list[Any] = []
    contact = Contact("here", made=True)
    absence = Absence(contact, 2, patience=9.0, on_away=told.append)
    first = absence.failed(Unavailable("x"))
    assert not told, "what passes soon is not told"
    left = absence.failed(Unavailable("x"))
    assert 0.1 <= first <= 0.12 and 0 < left <= 9.0 and len(told) == 1
    assert "here is away (x); its jobs go on" in told[0].message
    assert absence.answered() and told[-1] is None
    Absence(contact, patience=9.0, on_away=told.append).failed(errors.Aborted("x", retry_after=1))
    assert "here is busy (x); waiting up to 9 s" in told[-1].message
    short = Absence(contact, patience=0.01, on_away=told.append)
    assert short.failed(Unavailable("x")) < 0.02
    time.sleep(0.02)
    with pytest.raises(ServerAway, match="was away for"):
        short.failed(Unavailable("x"))
    watch = Watch(Absence(contact, 9, patience=0.9, on_away=told.append), NAME)
    waited = [watch.failed(Unavailable("x")) for _ in range(3)]
    assert waited[2] <= 0.9, "streams that break wait a second, but no patience is outlasted"

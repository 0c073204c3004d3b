"""How long a server may be away, and what is said meanwhile."""

import math
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import grpc
import pytest
from acpc.contract import GaussianNoise
from acpc.v1 import scoring_service_pb2 as pb
from acpc_client import AcpcClient
from acpc_client.errors import (
    AcpcError,
    ArgumentError,
    NotFound,
    ResourceExhausted,
    ServerAway,
    Unauthenticated,
)
from client_counterparty import Counterparty
from client_messages import operation, retry_info, score_response, status

NAME = "operations/1"
DONE = operation(NAME, 4, response=score_response(pb.OUTCOME_PASSED))
AWAY = status(grpc.StatusCode.UNAVAILABLE, "connect: Connection refused (111)")


def lines(told: list[str]) -> Any:
    return lambda away: told.append(away.message if away else "back")


def submit(client: Any) -> Any:
    return client.score_checkpoint("a", "f" * 64, GaussianNoise(0.08))


def test_a_long_absence_is_told_in_two_lines(side: Any, counterparty: Counterparty) -> None:
    told: list[str] = []
    counterparty.refusals["WatchOperation"].extend([AWAY] * 6)
    counterparty.refusals["GetOperation"].extend([AWAY] * 6)
    counterparty.script.append(DONE)
    side.collect(lambda client: client.operations.watch(NAME, patience=60), on_away=lines(told))
    away, back = told
    assert "is away (connection refused)" in away or "no server answers" in away
    assert "1 min" in away
    assert back == "back"


def test_a_submission_is_repeated_with_its_request_id(
    side: Any, counterparty: Counterparty
) -> None:
    told: list[str] = []
    counterparty.refusals["ScoreCheckpoint"].extend([AWAY] * 7)
    side.ask(submit, on_away=lines(told))
    sent = counterparty.requests["ScoreCheckpoint"]
    assert len(sent) == 8
    assert len({request.request_id for request in sent}) == 1
    assert len(told) == 2


@pytest.mark.parametrize(("patience", "sent"), [(0, 1), (0.1, 2)])
def test_patience_bounds_the_waits_that_a_server_asks_for(
    patience: float, sent: int, side: Any, counterparty: Counterparty
) -> None:
    full = status(grpc.StatusCode.RESOURCE_EXHAUSTED, "50 jobs are queued", retry_info(0.3))
    for method in ("ScoreCheckpoint", "WatchOperation"):
        counterparty.refusals[method].extend([full] * 9)
    options = {"patience": patience, "on_away": lambda _: None}
    with pytest.raises((ServerAway, ResourceExhausted)):
        side.ask(submit, **options)
    with pytest.raises((ServerAway, ResourceExhausted)):
        side.collect(lambda client: client.operations.watch(NAME), **options)
    assert len(counterparty.requests["ScoreCheckpoint"]) <= sent
    assert len(counterparty.requests["WatchOperation"]) <= sent


@pytest.mark.parametrize(
    ("code", "kind"),
    [(grpc.StatusCode.UNAUTHENTICATED, Unauthenticated), (grpc.StatusCode.NOT_FOUND, NotFound)],
)
def test_what_will_not_pass_ends_the_wait_at_once(
    code: grpc.StatusCode, kind: type[AcpcError], side: Any, counterparty: Counterparty
) -> None:
    counterparty.refusals["WatchOperation"].append(status(code, "no"))
    with pytest.raises(kind, match=NAME):
        side.collect(lambda client: client.operations.watch(NAME))
    assert len(counterparty.requests["WatchOperation"]) == 1


def test_another_program_on_the_port_is_no_server(side_of: Any) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as other:
        Thread(target=other.serve_forever, daemon=True).start()
        try:
            with pytest.raises(ServerAway, match=r"no server answers at .* start one") as caught:
                side_of(f"127.0.0.1:{other.server_port}").ask(
                    lambda client: client.checkpoints.get("a")
                )
        finally:
            other.shutdown()
    assert "HTTP/2" in caught.value.why


@pytest.mark.parametrize("seconds", [-1, math.nan, 10**400], ids=lambda value: f"{value!r:.5}")
def test_a_patience_that_is_no_time_is_named(seconds: float) -> None:
    with pytest.raises(ArgumentError, match="patience"):
        AcpcClient("localhost:1", patience=seconds)


def test_a_call_that_a_stopping_server_drops_is_sent_again(
    side: Any, counterparty: Counterparty
) -> None:
    counterparty.refusals["GetCheckpoint"].append(status(grpc.StatusCode.CANCELLED, "CANCELLED"))
    assert side.ask(lambda client: client.checkpoints.get("a")).name == "a"
    assert len(counterparty.requests["GetCheckpoint"]) == 2

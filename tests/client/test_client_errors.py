"""Every status of a real server becomes one typed error, the same on both sides."""

import traceback
from typing import Any

import grpc
import pytest
from acpc_client import errors
from acpc_client.errors import (
    AcpcError,
    ClientClosed,
    FieldViolation,
    InvalidArgument,
    ResourceExhausted,
    Unavailable,
)
from acpc_client.sync.client import AcpcClient
from client_counterparty import Counterparty
from client_messages import retry_info, status
from google.rpc import error_details_pb2, status_pb2

pytestmark = pytest.mark.edge

FAILURES = [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK]


@pytest.mark.parametrize("code", FAILURES, ids=lambda code: code.name)
def test_every_status_has_a_class_of_its_own(
    code: grpc.StatusCode, side: Any, counterparty: Counterparty
) -> None:
    counterparty.refusals["GetCheckpoint"].extend([status(code, "why")] * 3)
    with pytest.raises(AcpcError) as caught:
        side.ask(lambda client: client.checkpoints.get("a"))
    assert caught.value.code == code.name
    assert caught.value.message.split(";")[0] == "why"  # some say what to do as well
    assert type(caught.value).__name__ == code.name.title().replace("_", "")
    assert not isinstance(caught.value, grpc.RpcError)


QUESTIONS = {
    "call": lambda client: client.checkpoints.get("a"),
    "watch": lambda client: client.operations.get("operations/none"),
    "pages": lambda client: client.anchors.get("0" * 64),
}


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("there", [True, False])
def test_a_traceback_shows_our_error_alone(
    side: Any, counterparty: Counterparty, unused_target: str, question: str, there: bool
) -> None:
    """Refused, or not reached: gRPC's error stands neither above ours as cause nor as context."""
    for method in ("GetCheckpoint", "GetOperation", "GetAnchorSet"):
        counterparty.refusals[method].append(status(grpc.StatusCode.NOT_FOUND, "no"))
    asked = side if there else type(side)(unused_target)
    with pytest.raises(AcpcError) as caught:
        asked.ask(QUESTIONS[question])
    shown = "".join(traceback.format_exception(caught.value))
    assert shown.count("Traceback (most recent call last)") == 1
    assert "RpcError" not in shown


def test_details_of_the_server_are_fields_of_the_error(
    side: Any, counterparty: Counterparty
) -> None:
    violation = error_details_pb2.BadRequest.FieldViolation(field="history", description="no")
    counterparty.refusals["LoadCheckpoint"].append(
        status(
            grpc.StatusCode.INVALID_ARGUMENT,
            "history: no",
            error_details_pb2.ErrorInfo(reason="INVALID_FIELD", domain="acpc.v1"),
            error_details_pb2.BadRequest(field_violations=[violation]),
            retry_info(2.5),
        )
    )
    with pytest.raises(InvalidArgument) as caught:
        side.ask(lambda client: client.checkpoints.load("a", request_id="mine"))
    error = caught.value
    assert error.reason == "INVALID_FIELD"
    assert error.domain == "acpc.v1"
    assert error.violations == (FieldViolation("history", "no"),)
    assert error.retry_after == pytest.approx(2.5)
    assert error.request_id == "mine"


def test_mangled_details_leave_code_and_message() -> None:
    class Mangled(grpc.RpcError):
        def code(self) -> grpc.StatusCode:
            return grpc.StatusCode.RESOURCE_EXHAUSTED

        def details(self) -> str:
            return "full"

        def trailing_metadata(self) -> Any:
            return (("grpc-status-details-bin", b"\xff\xff\xff"),)

    error = errors.from_rpc_error(Mangled(), "mine")
    assert isinstance(error, ResourceExhausted)
    assert (error.message, error.retry_after, error.request_id) == ("full", None, "mine")


def test_a_status_of_the_future_is_unknown() -> None:
    error = errors.from_status(status_pb2.Status(code=99, message="new"))
    assert type(error) is errors.Unknown


def test_nobody_at_the_target(side_of: Any, unused_target: str) -> None:
    with pytest.raises(Unavailable) as caught:
        side_of(unused_target).ask(lambda client: client.checkpoints.get("a"), timeout=5)
    assert isinstance(caught.value, errors.ServerAway)
    assert caught.value.message == (
        f"no server answers at {unused_target} (connection refused); start one there (acpc-server "
        "serve --checkpoint-root DIR --dataset-root DIR), or name another (--target HOST:PORT, "
        "ACPC_TARGET)"
    )


def test_a_closed_client_says_so(target: str) -> None:
    client = AcpcClient(target)
    client.close()
    with pytest.raises(ClientClosed, match="GetCheckpoint") as caught:
        client.checkpoints.get("a")
    assert caught.value.reason == ""

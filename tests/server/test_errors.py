"""The errors: each class has a status, which carries what it says."""

import inspect
import re

import grpc
import pytest
from acpc.contract import errors
from acpc_server.errors import (
    AcpcError,
    DeviceFailed,
    HostShortage,
    InvalidArgument,
    UnknownName,
    UnsafeCheckpoint,
)
from acpc_server.rpc.call import to_status
from wire import Refusal

CLASSES = [
    value
    for value in vars(errors).values()
    if inspect.isclass(value) and issubclass(value, AcpcError) and value is not AcpcError
]


@pytest.mark.parametrize("error", CLASSES)
def test_a_class_has_a_real_status_code(error: type[AcpcError]) -> None:
    assert error.code in grpc.StatusCode.__members__
    assert error.code != "OK"
    assert re.fullmatch(r"[A-Z][A-Z_]+", error.default_reason)


@pytest.mark.parametrize(
    "error",
    [
        *(error("wrong", retry_after=0.25) for error in CLASSES if error is not InvalidArgument),
        InvalidArgument("field", "wrong"),
        UnknownName("wrong", "name", list, "acpc checkpoints"),
        UnsafeCheckpoint("wrong"),
        HostShortage("wrong"),
        DeviceFailed("wrong"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_status_carries_code_reason_retry_and_the_requests_id(error: AcpcError) -> None:
    told = Refusal.of_status(to_status(error, "id-1"))
    assert told.code == error.code
    assert told.message.endswith("wrong")
    assert (told.reason, told.domain) == (error.default_reason, "acpc.v1")
    assert (told.retry_after, told.request_id) == (error.retry_after, "id-1")


def test_field_paths_move_and_nest() -> None:
    error = InvalidArgument("checkpoint.name", "is empty", reason="EMPTY")
    assert error.below("plan").field == "plan.checkpoint.name"
    assert error.moved("checkpoint", "reference").field == "reference.name"
    assert error.moved("other", "reference").field == "checkpoint.name"
    assert InvalidArgument("", "bad").below("weights").field == "weights"
    moved = error.below("plan").moved("plan", "dataset")
    assert (moved.message, moved.reason) == ("dataset.checkpoint.name: is empty", "EMPTY")
    assert [v.field for v in moved.violations] == ["dataset.checkpoint.name"]


def test_the_nearest_names_are_looked_up_only_for_who_may_list_them() -> None:
    looked: list[str] = []

    def known() -> list[str]:
        looked.append("looked")
        return ["lewm", "pldm"]

    error = UnknownName("checkpoint 'lwem' does not exist", "lwem", known, "acpc list checkpoints")
    assert str(error) == "checkpoint 'lwem' does not exist"
    assert looked == []
    told = error.with_names()
    assert told.message == (
        "checkpoint 'lwem' does not exist; did you mean 'lewm'? acpc list checkpoints shows all"
    )
    assert (told.code, told.reason) == (error.code, error.reason)

"""Every answer of the contract is a record, whole: no field of a message is left behind."""

import types
import typing
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import acpc.contract
import numpy as np
import pytest
from acpc.contract import (
    KINDS,
    NUMBERS,
    CemBudget,
    CheckpointRef,
    CheckpointScore,
    DatasetAnchors,
    EvidenceOptions,
    GaussianBlur,
    PlannerStudy,
    Record,
    ScoreProtocol,
    ScoreRequest,
    StudyRequest,
    Thresholds,
    UntilDecided,
    Verdict,
    Wire,
    WireEnum,
)
from acpc.contract.messages import wire_names
from acpc.v1 import scoring_service_pb2, study_service_pb2
from hypothesis import given
from hypothesis import strategies as st
from methods import METHODS

# Messages that only hold answers: pages, members of streams, one field around a record.
WRAPPERS = {
    "CreateAnchorSetResponse", "GetAnchorSetResponse", "ListAnchorSetsResponse",
    "DeleteAnchorSetResponse", "UploadAnchorsResponse", "GetUploadResponse",
    "ListDatasetsResponse", "ListTasksResponse", "ListCheckpointsResponse", "GetCheckpointResponse",
    "UnloadCheckpointResponse", "ComparePairsResponse", "PlanResponse",
    "PlanStarted", "WatchOperationResponse",
}  # fmt: skip
# Fields that the client's session checks and does not hand on.
UNREAD = {("PlanCertificate", "iteration")}

# Parts of requests, which have ranges.
REF = CheckpointRef("folder", "last.pt", "d" * 64)
SOURCE = DatasetAnchors("tworoom.h5", "two-room", count=7, seed=0, one_per_episode=False)
SAMPLES: dict[str, st.SearchStrategy[Any]] = {
    "CheckpointRef": st.sampled_from([REF, CheckpointRef("other")]),
    "DatasetAnchors": st.just(SOURCE),
    "Thresholds": st.just(Thresholds(0.25, 0.5)),
    "EvidenceOptions": st.just(EvidenceOptions(0.9, 500, 3)),
    "UntilDecided": st.just(UntilDecided(7)),
    "ScoreRequest": st.sampled_from(
        [
            ScoreRequest(REF, SOURCE, GaussianBlur(15), REF, ScoreProtocol(extra_horizons=(1, 2))),
            ScoreRequest(REF, "a" * 64, GaussianBlur(3)),
        ]
    ),
    "StudyRequest": st.just(StudyRequest(REF, "a" * 64, PlannerStudy(budget=CemBudget(9, 3)))),
}

CLASSES = {
    value
    for value in (getattr(acpc.contract, name) for name in dir(acpc.contract))
    if isinstance(value, type) and issubclass(value, Wire) and hasattr(value, "message_type")
}
RECORDS = {cls.message_type.DESCRIPTOR.full_name: cls for cls in CLASSES}
ANSWERS = sorted((cls for cls in CLASSES if issubclass(cls, Record)), key=lambda cls: cls.__name__)


def answered() -> Iterator[Any]:
    """Every message of ours that an answer, or a job's metadata, holds."""
    todo = [method.output_type for method in METHODS.values()]
    todo += [
        scoring_service_pb2.ScoreCheckpointResponse.DESCRIPTOR,
        scoring_service_pb2.ScoreCheckpointMetadata.DESCRIPTOR,
        study_service_pb2.RunStudyResponse.DESCRIPTOR,
        study_service_pb2.RunStudyMetadata.DESCRIPTOR,
    ]
    seen: set[str] = {"acpc.v1.Tensor", "acpc.v1.NamedTensor"}
    while todo:
        message = todo.pop()
        ours = message.full_name.startswith("acpc.v1.") and not message.GetOptions().map_entry
        if not ours or message.full_name in seen:
            continue
        seen.add(message.full_name)
        yield message
        todo += [field.message_type for field in message.fields if field.message_type]


def test_every_field_of_an_answer_is_in_its_record() -> None:
    """Fails when a field is added to a .proto and not to the dataclass."""
    for message in answered():
        if message.name in WRAPPERS:
            continue
        if message.name == "PerturbationSpec":
            assert set(KINDS) == set(message.fields_by_name)
            continue
        assert message.full_name in RECORDS, f"{message.name} has no dataclass in acpc.contract"
        named = set(wire_names(RECORDS[message.full_name]).values())
        for field in message.fields:
            oneof = field.containing_oneof.name if field.containing_oneof else ""
            known = field.name in named or oneof in named
            assert known or (message.name, field.name) in UNREAD, f"{field.full_name} is not read"


def test_every_number_of_a_score_is_declared() -> None:
    """Fails when one is added to a side or its verdict and not to the catalogue."""
    for of, record in ("checkpoint", CheckpointScore), ("verdict", Verdict):
        hints = typing.get_type_hints(record)
        found = {name for name, hint in hints.items() if hint in (int, float, float | None)}
        assert found <= {name for name, number in NUMBERS.items() if number.of == of}


def values(hint: Any) -> st.SearchStrategy[Any]:  # noqa: PLR0911 - one for each kind of value
    arguments = typing.get_args(hint)
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        return st.one_of(*[st.none() if a is type(None) else values(a) for a in arguments])
    if origin is typing.Annotated:
        return values(arguments[0])
    if origin is tuple:
        return st.lists(values(arguments[0]), max_size=3).map(tuple)
    if origin is np.ndarray:
        dtype = next(iter(typing.get_args(arguments[1])), np.float64)
        dtype = np.float32 if dtype is Any else dtype
        shapes = st.lists(st.integers(0, 3), max_size=3)
        return shapes.map(lambda shape: np.arange(np.prod(shape, dtype=int)).reshape(shape)).map(
            lambda array: array.astype(dtype)
        )
    if isinstance(hint, type) and issubclass(hint, WireEnum):
        return st.sampled_from(list(hint))
    if isinstance(hint, type) and issubclass(hint, Wire):
        return instances(hint)
    if hint is Mapping or (origin is not None and issubclass(origin, Mapping)):
        return st.dictionaries(st.text(max_size=5), values(arguments[1]), max_size=2)
    return {
        int: st.integers(0, 2**31 - 1),
        float: st.floats(allow_nan=False),
        bool: st.booleans(),
        str: st.text(max_size=8),
        Any: st.none() | st.booleans() | st.text(max_size=8) | st.lists(st.floats(-1, 1)),  # JSON
        datetime: st.datetimes(datetime(1990, 1, 1), timezones=st.just(UTC)),
    }[hint]


def instances(cls: type[Any]) -> st.SearchStrategy[Any]:
    if cls is acpc.contract.Timing:
        seconds = st.integers(0, 10**6).map(float)
        return st.builds(cls, seconds, seconds, seconds)
    if cls.__name__ in SAMPLES:
        return SAMPLES[cls.__name__]
    hints = typing.get_type_hints(cls, include_extras=True)
    return st.builds(cls, **{name: values(hints[name]) for name in wire_names(cls)})


@pytest.mark.parametrize("cls", ANSWERS)
@given(data=st.data())
def test_an_answer_survives_the_wire(cls: type[Any], data: st.DataObject) -> None:
    sent = data.draw(instances(cls))
    message = cls.message_type.FromString(sent.to_message().SerializeToString())
    received = cls.from_message(message)
    assert received == sent
    assert received.to_message() == message

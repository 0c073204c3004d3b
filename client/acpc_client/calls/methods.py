"""The service's methods: where each is sent, how its answer is read, how long it may take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from acpc import contract
from acpc.contract import ArgumentError, CheckpointRef, Wire
from acpc.v1 import (
    anchor_service_pb2,
    checkpoint_service_pb2,
    dataset_service_pb2,
    diagnostic_service_pb2,
    scoring_service_pb2,
    study_service_pb2,
)
from google.longrunning import operations_pb2
from google.protobuf.message_factory import GetMessageClass

from acpc_client.calls import requests
from acpc_client.calls.options import (
    CallOptions,
    CertifyOptions,
    PairedOptions,
    PairOptions,
    PoolOptions,
    ScoreOptions,
)
from acpc_client.errors import MalformedAnswer
from acpc_client.results.answers import Operation, PairOutcome

Answer = TypeVar("Answer")
Item = TypeVar("Item")
Record = TypeVar("Record", bound=Wire[Any])
_SERVICES: tuple[Any, ...] = (
    anchor_service_pb2, checkpoint_service_pb2, dataset_service_pb2, diagnostic_service_pb2,
    scoring_service_pb2, study_service_pb2, operations_pb2,
)  # fmt: skip
_METHODS: dict[str, Any] = {
    method.name: method
    for file in _SERVICES
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}


class Rpc(Generic[Answer]):
    """One method of the contract.

    Attributes:
        name: Its name, which no other service has.
        parse: Turns the message of an answer into the answer.
        timeout: Default deadline in seconds.
        idempotent: Whether sending it twice does what sending it once does.
        asks: Class of its request and of its options, where it computes.
        path: Where gRPC sends it.
        kind: How a channel calls it, as ``unary_stream``.
        request: Class of its requests, which the contract's descriptor names, as all below.
        answer: Class of its answers.
    """

    def __init__(
        self,
        name: str,
        parse: Callable[[Any], Answer],
        timeout: float,
        *,
        idempotent: bool = True,
        asks: tuple[type[Wire[Any]], type] | None = None,
    ) -> None:
        method = _METHODS[name]
        self.name, self.parse, self.timeout, self.idempotent = name, parse, timeout, idempotent
        self.asks = asks
        self.path = f"/{method.containing_service.full_name}/{name}"
        ways = (method.client_streaming, method.server_streaming)
        self.kind = "_".join("stream" if streams else "unary" for streams in ways)
        self.request: type[Any] = GetMessageClass(method.input_type)
        self.answer: type[Any] = GetMessageClass(method.output_type)

    def message(
        self,
        checkpoint: str | CheckpointRef,
        options: Mapping[str, Any],
        **own: object,
    ) -> Any:  # noqa: ANN401 - of the method
        """The message of a request that computes; see ``requests.make``.

        Raises ArgumentError: An argument cannot be sent as it is; TypeError: An unknown option.
        """
        assert self.asks is not None  # noqa: S101 - in the table below
        return requests.make(*self.asks, checkpoint, options, own)

    def read(self, answer: object) -> Answer:
        """The typed answer that a message stands for.

        Raises MalformedAnswer: The message breaks the contract.
        """
        if answer is None:  # what grpc.aio yields for bytes that are no such message
            raise MalformedAnswer(f"the answer of {self.name} cannot be read")
        try:
            return self.parse(answer)
        except ArgumentError as error:
            raise MalformedAnswer(str(error)) from error


class Page(NamedTuple, Generic[Item]):
    """One page of a list."""

    items: tuple[Item, ...]
    next_token: str


def _part(record: type[Record], name: str) -> Callable[[Any], Record]:
    """Reads the record in a field of the answer."""
    return lambda answer: record.from_message(getattr(answer, name))


def _page(read: Callable[[Any], Item], name: str) -> Callable[[Any], Page[Item]]:
    """Reads the records of one page in a field of the answer."""
    return lambda answer: Page(tuple(map(read, getattr(answer, name))), answer.next_page_token)


def _message(answer: Any) -> Any:  # noqa: ANN401 - of the method
    """The message itself: a stream or an upload reads it by what went before."""
    return answer


def _nothing(_: object) -> None:
    """The answer of a method that answers nothing."""


_job = Operation.from_message
_pair, _paired = (contract.PairRequest, PairOptions), (contract.PairedRequest, PairedOptions)
COMPARE_PAIR = Rpc("ComparePair", contract.PairComparison.from_message, 30.0, asks=_pair)
COMPARE_PAIRS = Rpc("ComparePairs", PairOutcome.from_message, 600.0)
_pool, _start = (contract.PoolRequest, PoolOptions), (contract.PlanStart, CertifyOptions)
CERTIFY_POOL = Rpc("CertifyPool", contract.PoolCertificate.from_message, 30.0, asks=_pool)
# One deadline covers a session; a planner that runs longer names its own.
PLAN: Rpc[Any] = Rpc("Plan", _message, 600.0, asks=_start)
PLAN_PAIRED = Rpc("PlanPaired", contract.PairedPlans.from_message, 300.0, asks=_paired)

SCORE = Rpc("ScoreCheckpoint", _job, 30.0, asks=(contract.ScoreRequest, ScoreOptions))
STUDY = Rpc("RunStudy", _job, 30.0, asks=(contract.StudyRequest, CallOptions))
PREVIEW = Rpc("PreviewAnchors", lambda a: contract.AnchorPreviews.from_message(a).previews, 60.0)
WATCH = Rpc("WatchOperation", lambda answer: _job(answer.operation), 300.0)
GET_OPERATION = Rpc("GetOperation", _job, 10.0)
LIST_OPERATIONS = Rpc("ListOperations", _page(_job, "operations"), 10.0)
WAIT_OPERATION = Rpc("WaitOperation", _job, 60.0)
CANCEL_OPERATION = Rpc("CancelOperation", _nothing, 10.0)
# A second delete would answer NOT_FOUND for what the first one deleted.
DELETE_OPERATION = Rpc("DeleteOperation", _nothing, 10.0, idempotent=False)

_checkpoints = _page(contract.Checkpoint.from_message, "checkpoints")
LIST_CHECKPOINTS = Rpc("ListCheckpoints", _checkpoints, 30.0)
GET_CHECKPOINT = Rpc("GetCheckpoint", _part(contract.Checkpoint, "checkpoint"), 30.0)
LOAD_CHECKPOINT = Rpc("LoadCheckpoint", contract.LoadedCheckpoint.from_message, 300.0)
UNLOAD_CHECKPOINT = Rpc("UnloadCheckpoint", _part(contract.Checkpoint, "checkpoint"), 30.0)
LIST_DATASETS = Rpc("ListDatasets", _page(contract.DatasetFile.from_message, "datasets"), 30.0)
LIST_TASKS = Rpc("ListTasks", _page(contract.TaskSummary.from_message, "tasks"), 30.0)

# One stream of an upload, of which there may be many.
UPLOAD: Rpc[anchor_service_pb2.UploadAnchorsResponse] = Rpc("UploadAnchors", _message, 600.0)
GET_UPLOAD: Rpc[anchor_service_pb2.GetUploadResponse] = Rpc("GetUpload", _message, 30.0)
# Reads the dataset and compresses its frames.
CREATE_ANCHORS = Rpc("CreateAnchorSet", _part(contract.AnchorSet, "anchor_set"), 3600.0)
GET_ANCHORS = Rpc("GetAnchorSet", _part(contract.AnchorSet, "anchor_set"), 10.0)
ANCHOR_CONTENTS = Rpc("GetAnchorSet", _part(contract.AnchorContents, "contents"), 10.0)
LIST_ANCHORS = Rpc("ListAnchorSets", _page(contract.AnchorSet.from_message, "anchor_sets"), 30.0)
DELETE_ANCHORS = Rpc("DeleteAnchorSet", _nothing, 60.0, idempotent=False)


def pair_message(
    checkpoint: str | CheckpointRef, pair: requests.Pair, numeric_mode: contract.NumericMode
) -> diagnostic_service_pb2.ComparePairsRequest:
    """The message that carries one pair of a stream; raises as ``Rpc.message``."""
    options = {**vars(pair), "numeric_mode": numeric_mode}
    own = {name: options.pop(name) for name in ("history", "action_blocks")}
    name = options.pop("pair_id")
    asked = COMPARE_PAIR.message(checkpoint, options, **own)
    return diagnostic_service_pb2.ComparePairsRequest(pair_id=name, pair=asked)

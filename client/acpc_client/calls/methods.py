"""The service's methods: where each is sent, how its answer is read, how long it may take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from acpc.contract import (
    AnchorContents,
    AnchorPreview,
    AnchorSet,
    ArgumentError,
    Checkpoint,
    CheckpointRef,
    DatasetFile,
    LoadedCheckpoint,
    NumericMode,
    PairComparison,
    PairedPlans,
    PairedRequest,
    PairRequest,
    PlanStart,
    PoolCertificate,
    PoolRequest,
    ScoreRequest,
    StudyRequest,
    TaskSummary,
    Wire,
)
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
from acpc_client.results import Operation, PairOutcome

Answer = TypeVar("Answer")
Item = TypeVar("Item")
Record = TypeVar("Record", bound=Wire[Any])


class Rpc(Generic[Answer]):
    """One method of the contract.

    Attributes:
        name: Its name.
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
        service: Any,  # noqa: ANN401 - a descriptor
        name: str,
        parse: Callable[[Any], Answer],
        timeout: float,
        *,
        idempotent: bool = True,
        asks: tuple[type[Wire[Any]], type] | None = None,
    ) -> None:
        method = service.methods_by_name[name]
        self.name, self.parse, self.timeout, self.idempotent = name, parse, timeout, idempotent
        self.asks = asks
        self.path = f"/{service.full_name}/{name}"
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


@dataclass(frozen=True)
class Page(Generic[Item]):
    """One page of a list."""

    items: tuple[Item, ...]
    next_token: str


def _part(record: type[Record], name: str) -> Callable[[Any], Record]:
    """Reads the record in a field of the answer."""
    return lambda answer: record.from_message(getattr(answer, name))


def _page(read: Callable[[Any], Item], name: str) -> Callable[[Any], Page[Item]]:
    """Reads the records of one page in a field of the answer."""
    return lambda answer: Page(tuple(map(read, getattr(answer, name))), answer.next_page_token)


def _previews(answer: scoring_service_pb2.PreviewAnchorsResponse) -> tuple[AnchorPreview, ...]:
    return tuple(map(AnchorPreview.from_message, answer.previews))


def _message(answer: Any) -> Any:  # noqa: ANN401 - of the method
    """The message itself: a stream or an upload reads it by what went before."""
    return answer


def _nothing(_: object) -> None:
    """The answer of a method that answers nothing."""


_diagnostics = diagnostic_service_pb2.DESCRIPTOR.services_by_name["DiagnosticService"]
_pair = (PairRequest, PairOptions)
COMPARE_PAIR = Rpc(_diagnostics, "ComparePair", PairComparison.from_message, 30.0, asks=_pair)
COMPARE_PAIRS = Rpc(_diagnostics, "ComparePairs", PairOutcome.from_message, 600.0)
_pool = (PoolRequest, PoolOptions)
CERTIFY_POOL = Rpc(_diagnostics, "CertifyPool", PoolCertificate.from_message, 30.0, asks=_pool)
# One deadline covers a session; a planner that runs longer names its own.
_start = (PlanStart, CertifyOptions)
PLAN: Rpc[Any] = Rpc(_diagnostics, "Plan", _message, 600.0, asks=_start)
_paired = (PairedRequest, PairedOptions)
PLAN_PAIRED = Rpc(_diagnostics, "PlanPaired", PairedPlans.from_message, 300.0, asks=_paired)

_scoring = scoring_service_pb2.DESCRIPTOR.services_by_name["ScoringService"]
_score = (ScoreRequest, ScoreOptions)
SCORE = Rpc(_scoring, "ScoreCheckpoint", Operation.from_message, 30.0, asks=_score)
PREVIEW = Rpc(_scoring, "PreviewAnchors", _previews, 60.0)
WATCH = Rpc(_scoring, "WatchOperation", lambda a: Operation.from_message(a.operation), 300.0)
_studies = study_service_pb2.DESCRIPTOR.services_by_name["StudyService"]
_study = (StudyRequest, CallOptions)
STUDY = Rpc(_studies, "RunStudy", Operation.from_message, 30.0, asks=_study)

_operations = operations_pb2.DESCRIPTOR.services_by_name["Operations"]
GET_OPERATION = Rpc(_operations, "GetOperation", Operation.from_message, 10.0)
_operation_page = _page(Operation.from_message, "operations")
LIST_OPERATIONS = Rpc(_operations, "ListOperations", _operation_page, 10.0)
WAIT_OPERATION = Rpc(_operations, "WaitOperation", Operation.from_message, 60.0)
CANCEL_OPERATION = Rpc(_operations, "CancelOperation", _nothing, 10.0)
# A second delete would answer NOT_FOUND for what the first one deleted.
DELETE_OPERATION = Rpc(_operations, "DeleteOperation", _nothing, 10.0, idempotent=False)

_checkpoints = checkpoint_service_pb2.DESCRIPTOR.services_by_name["CheckpointService"]
_checkpoint, _checkpoint_page = (
    _part(Checkpoint, "checkpoint"),
    _page(Checkpoint.from_message, "checkpoints"),
)
LIST_CHECKPOINTS = Rpc(_checkpoints, "ListCheckpoints", _checkpoint_page, 30.0)
GET_CHECKPOINT = Rpc(_checkpoints, "GetCheckpoint", _checkpoint, 30.0)
LOAD_CHECKPOINT = Rpc(_checkpoints, "LoadCheckpoint", LoadedCheckpoint.from_message, 300.0)
UNLOAD_CHECKPOINT = Rpc(_checkpoints, "UnloadCheckpoint", _checkpoint, 30.0)

_datasets = dataset_service_pb2.DESCRIPTOR.services_by_name["DatasetService"]
LIST_DATASETS = Rpc(_datasets, "ListDatasets", _page(DatasetFile.from_message, "datasets"), 30.0)
LIST_TASKS = Rpc(_datasets, "ListTasks", _page(TaskSummary.from_message, "tasks"), 30.0)

_anchors = anchor_service_pb2.DESCRIPTOR.services_by_name["AnchorService"]
_anchor_set = _part(AnchorSet, "anchor_set")
# One stream of an upload, of which there may be many.
UPLOAD: Rpc[anchor_service_pb2.UploadAnchorsResponse] = Rpc(
    _anchors, "UploadAnchors", _message, 600.0
)
GET_UPLOAD: Rpc[anchor_service_pb2.GetUploadResponse] = Rpc(_anchors, "GetUpload", _message, 30.0)
# Reads the dataset and compresses its frames.
CREATE_ANCHORS = Rpc(_anchors, "CreateAnchorSet", _anchor_set, 3600.0)
GET_ANCHORS = Rpc(_anchors, "GetAnchorSet", _anchor_set, 10.0)
ANCHOR_CONTENTS = Rpc(_anchors, "GetAnchorSet", _part(AnchorContents, "contents"), 10.0)
LIST_ANCHORS = Rpc(_anchors, "ListAnchorSets", _page(AnchorSet.from_message, "anchor_sets"), 30.0)
DELETE_ANCHORS = Rpc(_anchors, "DeleteAnchorSet", _nothing, 60.0, idempotent=False)


def pair_message(
    checkpoint: str | CheckpointRef, pair: requests.Pair, numeric_mode: NumericMode
) -> diagnostic_service_pb2.ComparePairsRequest:
    """The message that carries one pair of a stream; raises as ``Rpc.message``."""
    options = {**vars(pair), "numeric_mode": numeric_mode}
    own = {name: options.pop(name) for name in ("history", "action_blocks")}
    name = options.pop("pair_id")
    asked = COMPARE_PAIR.message(checkpoint, options, **own)
    return diagnostic_service_pb2.ComparePairsRequest(pair_id=name, pair=asked)

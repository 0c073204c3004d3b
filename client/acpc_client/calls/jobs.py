"""ScoreCheckpoint, WatchOperation and the standard Operations service."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Protocol, Unpack

from acpc import contract
from acpc.contract import (
    AnchorPreview,
    AnchorSet,
    ArgumentError,
    CheckpointRef,
    DatasetAnchors,
    Perturbation,
    Study,
    StudyRequest,
)
from acpc.v1 import scoring_service_pb2 as pb
from acpc.v1.scoring_service_pb2_grpc import ScoringServiceStub
from acpc.v1.study_service_pb2_grpc import StudyServiceStub
from google.longrunning import operations_pb2
from google.longrunning.operations_pb2_grpc import OperationsStub
from google.protobuf import duration_pb2

from acpc_client.calls.call import (
    CallOptions,
    Method,
    Page,
    PreparedCall,
    ScoreOptions,
    check_options,
    common,
    list_call,
    send,
    source,
)
from acpc_client.calls.diagnostics import only_perturbation
from acpc_client.inputs import unsigned
from acpc_client.results import Operation

SCORE = Method(ScoringServiceStub, "ScoreCheckpoint", timeout=30.0)
PREVIEW = Method(ScoringServiceStub, "PreviewAnchors", timeout=60.0)
WATCH = Method(ScoringServiceStub, "WatchOperation", timeout=300.0)
GET = Method(OperationsStub, "GetOperation", timeout=10.0)
LIST = Method(OperationsStub, "ListOperations", timeout=10.0)
CANCEL = Method(OperationsStub, "CancelOperation", timeout=10.0)
# A second delete would answer NOT_FOUND for an operation that the first one deleted.
DELETE = Method(OperationsStub, "DeleteOperation", timeout=10.0, idempotent=False)
WAIT = Method(OperationsStub, "WaitOperation", timeout=60.0)
# Of one severity: each time its checkpoint is overwritten takes one.
MAX_ATTEMPTS = 1000
# Beyond the wait itself, for the answer to arrive.
WAIT_SLACK_S = 10.0


def score_checkpoint(
    checkpoint: str | CheckpointRef,
    anchors: DatasetAnchors | AnchorSet | str,
    shift: Perturbation,
    **options: Unpack[ScoreOptions],
) -> PreparedCall[Operation]:
    """The call that submits a scoring job.

    Raises ArgumentError: An argument cannot be sent as it is; TypeError: An unknown option.
    """
    check_options(options, ScoreOptions)
    against = options.get("reference")
    asked = contract.ScoreRequest(
        **common(checkpoint, options, "protocol", "thresholds", "evidence", "until_decided"),
        anchors=source(anchors),
        shift=only_perturbation(shift, "shift"),
        reference=None if against is None else CheckpointRef.of(against),
    )
    return send(SCORE, asked, Operation.from_message)


def limit_names(
    checkpoint: str | CheckpointRef,
    anchors: DatasetAnchors | AnchorSet | str,
    shift: Perturbation,
    options: ScoreOptions,
) -> Iterator[str]:
    """Request ids of one severity of a limit, to be tried in this order: equal for equal requests.

    Raises ArgumentError: An argument cannot be sent as it is, or there is no reference.
    """
    if options.get("reference") is None:
        raise ArgumentError("reference", "name one: without it no severity passes")
    asked: ScoreOptions = {**options, "request_id": options.get("request_id") or "limit"}
    request = score_checkpoint(checkpoint, anchors, shift, **asked).request
    content = request.SerializeToString(deterministic=True)
    prefix = f"limit-{hashlib.sha256(content).hexdigest()[:24]}"
    return (f"{prefix}-{attempt}" for attempt in range(1, MAX_ATTEMPTS + 1))


def limit_severities(
    strongest: Perturbation | Sequence[Perturbation], steps: int
) -> list[Perturbation]:
    """The severities of a limit: even steps up to the strongest, or the grid itself.

    Raises ArgumentError: There are none, one changes nothing, or they differ by more than severity.
    """
    if not isinstance(strongest, Sequence):
        return contract.severities_up_to(strongest, steps)
    curves = {contract.curve_of(shift) for shift in strongest}
    if len(curves) != 1 or None in curves:
        wanted = "wanted changes that differ by their severity alone, none of which changes nothing"
        raise ArgumentError("strongest", f"found {', '.join(map(str, strongest))}, {wanted}")
    return list(dict.fromkeys(strongest))


class Named(Protocol):
    """A job, or an operation."""

    @property
    def name(self) -> str:
        """``operations/<id>``."""
        ...


def preview_anchors(
    job: str | Named, anchors: Sequence[int], draw: int
) -> PreparedCall[tuple[AnchorPreview, ...]]:
    """The call that asks what the model saw at some anchors of a job.

    Raises ArgumentError: An index or the draw cannot be sent as it is.
    """
    request = pb.PreviewAnchorsRequest(
        name=job if isinstance(job, str) else job.name,
        anchors=[unsigned(index, "anchors") for index in anchors],
        draw=unsigned(draw, "draw"),
    )
    return PreparedCall(PREVIEW, request, _previews)


def watch(name: str) -> PreparedCall[Operation]:
    """The call that streams an operation."""
    request = pb.WatchOperationRequest(name=name)
    return PreparedCall(WATCH, request, lambda answer: Operation.from_message(answer.operation))


def get(name: str) -> PreparedCall[Operation]:
    """The call that reads an operation."""
    request = operations_pb2.GetOperationRequest(name=name)
    return PreparedCall(GET, request, Operation.from_message)


def list_page(condition: str, page_size: int, token: str) -> PreparedCall[Page[Operation]]:
    """The call that reads one page of operations."""
    request = operations_pb2.ListOperationsRequest(
        name="operations",
        filter=condition,
        page_size=unsigned(page_size, "page_size", 31),
        page_token=token,
    )
    return list_call(LIST, request, "operations", Operation.from_message)


def wait(name: str, timeout: float) -> PreparedCall[Operation]:
    """The call that waits at the server, for ``timeout`` seconds at most."""
    whole = int(timeout)
    limit = duration_pb2.Duration(seconds=whole, nanos=int((timeout - whole) * 1e9))
    request = operations_pb2.WaitOperationRequest(name=name, timeout=limit)
    return PreparedCall(WAIT, request, Operation.from_message)


def cancel(name: str) -> PreparedCall[None]:
    """The call that asks for a job to be cancelled."""
    return PreparedCall(CANCEL, operations_pb2.CancelOperationRequest(name=name), _nothing)


def delete(name: str) -> PreparedCall[None]:
    """The call that forgets an operation."""
    return PreparedCall(DELETE, operations_pb2.DeleteOperationRequest(name=name), _nothing)


def _previews(answer: pb.PreviewAnchorsResponse) -> tuple[AnchorPreview, ...]:
    return tuple(AnchorPreview.from_message(preview) for preview in answer.previews)


def _nothing(_: object) -> None:
    """The answer of a method that answers nothing."""


RUN = Method(StudyServiceStub, "RunStudy", timeout=30.0)


def run_study(
    checkpoint: str | CheckpointRef,
    anchors: DatasetAnchors | AnchorSet | str,
    study: Study,
    **options: Unpack[CallOptions],
) -> PreparedCall[Operation]:
    """The call that submits a study.

    Raises ArgumentError: An argument cannot be sent as it is; TypeError: An unknown option.
    """
    check_options(options, CallOptions)
    asked = StudyRequest(**common(checkpoint, options), anchors=source(anchors), study=study)
    return send(RUN, asked, Operation.from_message)

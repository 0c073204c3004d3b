"""ScoringService: checkpoint jobs."""

from __future__ import annotations

import math
from collections.abc import Iterator

import grpc
from acpc.v1 import receipt_pb2
from acpc.v1 import scoring_service_pb2 as pb
from acpc.v1 import scoring_service_pb2_grpc as pb_grpc
from google.longrunning import operations_pb2

from acpc_server.diagnostics import (
    AnchorSource,
    CheckpointName,
    CheckpointScoring,
    Protocol,
    ScorePlan,
    ScreenThresholds,
)
from acpc_server.engine import CheckpointCache
from acpc_server.errors import InvalidArgument, Unimplemented
from acpc_server.jobs import JobService
from acpc_server.numerics.consistency import horizon_weights
from acpc_server.numerics.screening import check_thresholds
from acpc_server.rpc import codec
from acpc_server.rpc.job_messages import OperationWriter
from acpc_server.rpc.operations import read_name
from acpc_server.rpc.request import MAX_NAME, load, request_id

MAX_DRAWS = 1000
MAX_HORIZON = 256
MAX_ANCHORS = 100_000
MAX_EXTRAS = 64
# Radii in one result; they travel in one message.
MAX_RADII = 1_000_000


class ScoringServicer(pb_grpc.ScoringServiceServicer):
    """Accepts checkpoint jobs and streams their progress."""

    def __init__(
        self,
        checkpoints: CheckpointCache,
        scoring: CheckpointScoring,
        jobs: JobService,
        writer: OperationWriter,
    ) -> None:
        self._checkpoints = checkpoints
        self._scoring = scoring
        self._jobs = jobs
        self._writer = writer

    def ScoreCheckpoint(
        self, request: pb.ScoreCheckpointRequest, context: grpc.ServicerContext
    ) -> operations_pb2.Operation:
        """Queue a job; everything that can be checked is checked before it is queued."""
        request_id(request)
        plan = self._plan(request)
        self._scoring.check(plan)
        # Only the message's own id makes a submission idempotent, not a tracing header.
        return self._writer.write(self._jobs.submit(plan, request.request_id))

    def WatchOperation(
        self, request: pb.WatchOperationRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.WatchOperationResponse]:
        """The operation whenever it moves, until it is done."""
        for job in self._jobs.watch(read_name(request.name), context.is_active):
            yield pb.WatchOperationResponse(operation=self._writer.write(job))

    def _plan(self, request: pb.ScoreCheckpointRequest) -> ScorePlan:
        source = _read_anchors(request)
        protocol = read_protocol(request.protocol)
        if source.count * protocol.draws > MAX_RADII:
            raise InvalidArgument(
                "protocol.draws",
                f"{protocol.draws} draws of {source.count} anchors are over {MAX_RADII}",
            )
        thresholds = _read_thresholds(request.thresholds)
        shift = codec.read_spec(request.perturbation, "perturbation")
        mode = codec.read_mode(request.numeric_mode)
        checkpoint = self._named(request.checkpoint, "checkpoint")
        reference = None
        if request.HasField("reference"):
            reference = self._named(request.reference, "reference")
        return ScorePlan(
            checkpoint=checkpoint,
            reference=reference,
            anchors=source,
            perturbation=shift,
            protocol=protocol,
            thresholds=thresholds,
            numeric_mode=mode,
        )

    def _named(self, ref: receipt_pb2.CheckpointRef, field: str) -> CheckpointName:
        loaded = load(self._checkpoints, ref, field)
        return CheckpointName(
            name=loaded.name, weights=loaded.weights, digest=loaded.model.card.digest
        )


def _read_anchors(request: pb.ScoreCheckpointRequest) -> AnchorSource:
    kind = request.WhichOneof("anchors")
    if kind == "anchor_set":
        raise Unimplemented("anchor sets are in the contract but not in this release; use dataset")
    if kind is None:
        raise InvalidArgument("dataset", "name a dataset to draw anchors from")
    dataset = request.dataset
    for field in ("dataset", "task"):
        if not 1 <= len(getattr(dataset, field)) <= MAX_NAME:
            raise InvalidArgument(f"dataset.{field}", f"give 1 to {MAX_NAME} characters")
    given = {
        field: getattr(dataset, field)
        for field in ("count", "seed", "frameskip")
        if dataset.HasField(field)
    }
    source = AnchorSource(dataset=dataset.dataset, task=dataset.task, **given)
    if not 2 <= source.count <= MAX_ANCHORS:
        raise InvalidArgument("dataset.count", f"{source.count} is not in 2 to {MAX_ANCHORS}")
    if source.seed >= 2**63:
        raise InvalidArgument("dataset.seed", f"{source.seed} does not fit a signed 64-bit number")
    if source.frameskip == 0:
        raise InvalidArgument("dataset.frameskip", "must be at least 1")
    return source


def read_protocol(message: pb.ScoreProtocol) -> Protocol:
    """The protocol of a message, the paper's where it is silent.

    Raises:
        InvalidArgument: A value outside its range; names the field.
    """
    given = {
        field: getattr(message, field)
        for field in ("draws", "seed", "horizon", "quantile", "margin")
        if message.HasField(field)
    }
    protocol = Protocol(
        weights=tuple(message.weights),
        extra_horizons=tuple(message.extra_horizons),
        extra_quantiles=tuple(message.extra_quantiles),
        **given,
    )
    _require(1 <= protocol.draws <= MAX_DRAWS, "draws", f"is not in 1 to {MAX_DRAWS}")
    _require(1 <= protocol.horizon <= MAX_HORIZON, "horizon", f"is not in 1 to {MAX_HORIZON}")
    _require(0 <= protocol.quantile <= 1, "quantile", "is not in [0, 1]")
    _require(0 <= protocol.margin < math.inf, "margin", "is not finite and at least 0")
    extras = len(protocol.extra_horizons) + len(protocol.extra_quantiles)
    _require(extras <= MAX_EXTRAS, "extra_horizons", f"more than {MAX_EXTRAS} extra summaries")
    for horizon in protocol.extra_horizons:
        _require(
            1 <= horizon <= protocol.horizon,
            "extra_horizons",
            f"{horizon} is not in 1 to the horizon, {protocol.horizon}",
        )
    for quantile in protocol.extra_quantiles:
        _require(0 <= quantile <= 1, "extra_quantiles", f"{quantile} is not in [0, 1]")
    try:
        horizon_weights(protocol.weights, protocol.horizon)
    except InvalidArgument as error:
        raise error.below("protocol") from error
    return protocol


def _require(holds: bool, field: str, problem: str) -> None:
    if not holds:
        raise InvalidArgument(f"protocol.{field}", problem)


def _read_thresholds(message: pb.Thresholds) -> ScreenThresholds:
    given = {field: getattr(message, field) for field in ("ir", "sr") if message.HasField(field)}
    thresholds = ScreenThresholds(**given)
    check_thresholds(thresholds.ir, thresholds.sr)
    return thresholds

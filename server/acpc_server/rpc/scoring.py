"""ScoringService: checkpoint jobs."""

from __future__ import annotations

import math
from collections.abc import Iterator

import grpc
from acpc.v1 import receipt_pb2
from acpc.v1 import scoring_service_pb2 as pb
from acpc.v1 import scoring_service_pb2_grpc as pb_grpc
from google.longrunning import operations_pb2

from acpc_server.encoding import AnchorReaders
from acpc_server.engine import CheckpointCache, CheckpointName
from acpc_server.errors import FailedPrecondition, InvalidArgument
from acpc_server.jobs import JobService, JobState
from acpc_server.numerics import check_thresholds, horizon_weights
from acpc_server.rpc import codec
from acpc_server.rpc.job_messages import OperationWriter
from acpc_server.rpc.operations import read_name
from acpc_server.rpc.request import load, request_id
from acpc_server.rpc.score_messages import write_previews
from acpc_server.rpc.sources import read_source
from acpc_server.scoring import ScoreJobKind, ScoreProtocol, ScoreSpec, ScreenThresholds

MAX_DRAWS = 1000
MAX_HORIZON = 256
MAX_EXTRAS = 64
# Radii by draw, or by step, in one result; they travel in one message.
MAX_RADII = 1_000_000


class ScoringServicer(pb_grpc.ScoringServiceServicer):
    """Accepts checkpoint jobs and streams their progress."""

    def __init__(
        self,
        checkpoints: CheckpointCache,
        scoring: ScoreJobKind,
        readers: AnchorReaders,
        jobs: JobService,
        writer: OperationWriter,
    ) -> None:
        self._checkpoints = checkpoints
        self._scoring = scoring
        self._readers = readers
        self._jobs = jobs
        self._writer = writer

    def ScoreCheckpoint(
        self, request: pb.ScoreCheckpointRequest, context: grpc.ServicerContext
    ) -> operations_pb2.Operation:
        """Queue a job; everything that can be checked is checked before it is queued."""
        request_id(request)
        spec = self._spec(request)
        self._scoring.check(spec)
        # Only the message's own id makes a submission idempotent, not a tracing header.
        return self._writer.write(self._jobs.submit(spec, request.request_id))

    def WatchOperation(
        self, request: pb.WatchOperationRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.WatchOperationResponse]:
        """The operation whenever it moves, until it is done."""
        for job in self._jobs.watch(read_name(request.name), context.is_active):
            yield pb.WatchOperationResponse(operation=self._writer.write(job))

    def PreviewAnchors(
        self, request: pb.PreviewAnchorsRequest, context: grpc.ServicerContext
    ) -> pb.PreviewAnchorsResponse:
        """What the model saw at a few anchors of a job that succeeded."""
        job = self._jobs.get(read_name(request.name))
        spec = job.spec
        if not isinstance(spec, ScoreSpec):
            raise InvalidArgument(
                "name", f"{request.name} is a {job.kind} job, which has no pictures"
            )
        if job.state is not JobState.SUCCEEDED or job.result is None:
            raise FailedPrecondition(
                f"{request.name} is {job.state}; only a job that succeeded has pictures",
                reason="OPERATION_NOT_SUCCEEDED",
            )
        return write_previews(
            self._scoring.preview(spec, job.result, request.anchors, request.draw)
        )

    def _spec(self, request: pb.ScoreCheckpointRequest) -> ScoreSpec:
        source = read_source(request, self._readers, least=2)
        protocol = read_protocol(request.protocol)
        for field in ("draws", "horizon"):
            values = getattr(protocol, field)
            if source.count * values > MAX_RADII:
                raise InvalidArgument(
                    f"protocol.{field}",
                    f"{values} values for each of {source.count} anchors are over {MAX_RADII}",
                )
        thresholds = _read_thresholds(request.thresholds)
        shift = codec.read_spec(request.perturbation, "perturbation")
        mode = codec.read_mode(request.numeric_mode)
        checkpoint = self._named(request.checkpoint, "checkpoint")
        reference = None
        if request.HasField("reference"):
            reference = self._named(request.reference, "reference")
        return ScoreSpec(
            checkpoint=checkpoint,
            reference=reference,
            anchors=source,
            perturbation=shift,
            protocol=protocol,
            thresholds=thresholds,
            numeric_mode=mode,
        )

    def _named(self, ref: receipt_pb2.CheckpointRef, field: str) -> CheckpointName:
        return load(self._checkpoints, ref, field).pinned()


def read_protocol(message: pb.ScoreProtocol) -> ScoreProtocol:
    """The protocol of a message, the paper's where it is silent.

    Raises:
        InvalidArgument: A value outside its range; names the field.
    """
    given = {
        field: getattr(message, field)
        for field in ("draws", "seed", "horizon", "quantile", "margin")
        if message.HasField(field)
    }
    protocol = ScoreProtocol(
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

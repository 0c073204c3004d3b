"""ScoringService: checkpoint jobs."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
from acpc.contract import ScoreRequest
from acpc.v1 import scoring_service_pb2 as pb
from acpc.v1 import scoring_service_pb2_grpc as pb_grpc
from google.longrunning import operations_pb2

from acpc_server.encoding import AnchorReaders
from acpc_server.engine import CheckpointCache
from acpc_server.errors import FailedPrecondition, InvalidArgument
from acpc_server.jobs import JobService, JobState
from acpc_server.numerics import horizon_weights
from acpc_server.perturb import require_known
from acpc_server.rpc.operations import OperationWriter, read_name
from acpc_server.rpc.request import named, read, read_anchors, read_mode
from acpc_server.scoring import ScoreJobKind, ScoreSpec

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
        spec = self._spec(read(ScoreRequest, request))
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
        previews = self._scoring.preview(spec, job.result, request.anchors, request.draw)
        return previews.to_message()

    def _spec(self, asked: ScoreRequest) -> ScoreSpec:
        source, protocol = read_anchors(asked.anchors, self._readers), asked.protocol
        for field, values in (("draws", protocol.draws), ("horizon", protocol.horizon)):
            if source.count * values > MAX_RADII:
                raise InvalidArgument(
                    f"protocol.{field}",
                    f"{values} values for each of {source.count} anchors are over {MAX_RADII}",
                )
        try:
            horizon_weights(protocol.weights, protocol.horizon)
        except InvalidArgument as error:
            raise error.below("protocol") from error
        require_known([asked.shift], "perturbation")
        against = asked.reference
        return ScoreSpec(
            checkpoint=named(self._checkpoints, asked.checkpoint),
            reference=against and named(self._checkpoints, against, "reference"),
            anchors=source,
            perturbation=asked.shift,
            protocol=protocol,
            thresholds=asked.thresholds,
            numeric_mode=read_mode(asked.numeric_mode),
        )

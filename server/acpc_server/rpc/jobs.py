"""ScoringService, StudyService, google.longrunning.Operations: jobs, which share one servicer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from acpc.contract import (
    DIRECTIONS,
    VIEWS,
    CheckpointRef,
    DriftStudy,
    GivenViews,
    NumericMode,
    PlannerStudy,
    Population,
    ScoreRequest,
    SensitivityStudy,
    StudyRequest,
    VisualChange,
    check,
    resolved,
)
from acpc.v1 import scoring_service_pb2 as pb
from acpc.v1 import study_service_pb2 as study_pb
from google.longrunning import operations_pb2 as ops
from google.protobuf import empty_pb2

from acpc_server.access import require_owner
from acpc_server.encoding import AnchorReaders, AnchorSetSource
from acpc_server.engine import CheckpointCache
from acpc_server.errors import FailedPrecondition, InvalidArgument, Unavailable, below
from acpc_server.jobs import JobService, JobSpec, JobState
from acpc_server.numerics import horizon_weights
from acpc_server.perturb import require_known
from acpc_server.rpc.call import Call
from acpc_server.rpc.following import JobFollowers
from acpc_server.rpc.operations import OperationWriter, read_filter
from acpc_server.rpc.request import PREFIX, load, read, read_anchors, read_name, read_page
from acpc_server.scoring import ScoreJobKind, ScoreSpec, preview_anchors
from acpc_server.studies import StudyJobKind, StudySpec, goal_offset

WAIT_SECONDS = 60.0
# Of a page, which ends before it: gRPC's clients take messages of 4 MiB by default.
MAX_LIST_BYTES = 3 * 2**20
# Radii by draw, or by step, in one result; they travel in one message.
MAX_RADII = 1_000_000


@dataclass(frozen=True)
class JobServicer:
    """Accepts checkpoint jobs and studies; lists, follows, cancels and deletes jobs."""

    _jobs: JobService
    _writer: OperationWriter
    _followers: JobFollowers
    _scoring: ScoreJobKind
    _studies: StudyJobKind
    _checkpoints: CheckpointCache
    _readers: AnchorReaders

    def ScoreCheckpoint(self, request: pb.ScoreCheckpointRequest, call: Call) -> ops.Operation:
        """Queue a job; everything that can be checked is checked before it is queued."""
        spec = self._spec(read(ScoreRequest, request))
        self._scoring.check(spec)
        return self._submit(spec, request.request_id, call)

    def GetOperation(self, request: ops.GetOperationRequest, call: Call) -> ops.Operation:
        """Return one operation."""
        job = self._jobs.get(read_name(request.name))
        return self._writer.write(job)

    def ListOperations(
        self, request: ops.ListOperationsRequest, call: Call
    ) -> ops.ListOperationsResponse:
        """List a page of operations, newest first, without their responses, which are large.

        See :func:`read_filter` for ``filter``.
        """
        if request.name not in ("", "operations"):
            raise InvalidArgument("name", f"{request.name!r}; operations live in 'operations'")
        page = read_page(request)
        wanted = read_filter(request.filter, self._writer.kinds)
        rows = self._jobs.list(page.start, len(page) + 1, wanted)
        answer, size = ops.ListOperationsResponse(), 0
        for count, job in enumerate(rows):
            written = self._writer.write(job)
            size += written.ByteSize()
            if count == len(page) or (count and size > MAX_LIST_BYTES):
                answer.next_page_token = str(page.start + count)
                break
            answer.operations.append(written)
        return answer

    def CancelOperation(self, request: ops.CancelOperationRequest, call: Call) -> empty_pb2.Empty:
        """Stop a job at its next chunk."""
        self._jobs.cancel(self._own(request.name, call))
        return empty_pb2.Empty()

    def DeleteOperation(self, request: ops.DeleteOperationRequest, call: Call) -> empty_pb2.Empty:
        """Delete a finished job."""
        self._jobs.delete(self._own(request.name, call))
        return empty_pb2.Empty()

    async def WaitOperation(self, request: ops.WaitOperationRequest, call: Call) -> ops.Operation:
        """Return the operation once it is done, or as it is when the timeout passes."""
        seconds = WAIT_SECONDS
        if request.HasField("timeout"):
            seconds = request.timeout.seconds + request.timeout.nanos / 1e9
            if seconds < 0:
                raise InvalidArgument("timeout", f"{seconds} s is negative")
        if (remaining := call.remaining()) is not None:
            # Answer before the caller's own deadline rather than miss it.
            seconds = min(seconds, 0.9 * remaining)
        async with self._followers.follow(request.name, call) as changes:
            job = await changes.next()
            with suppress(TimeoutError):
                async with asyncio.timeout(min(seconds, WAIT_SECONDS)):
                    while job is not None and not job.state.done:
                        job = await changes.next()
        job = changes.job or await call.aside(self._jobs.get, read_name(request.name))
        return await call.aside(self._writer.write, job)

    async def WatchOperation(
        self, request: pb.WatchOperationRequest, call: Call
    ) -> AsyncIterator[pb.WatchOperationResponse]:
        """Send the operation whenever it changes; Unavailable when the server stops before."""
        async with self._followers.follow(request.name, call) as changes:
            while (job := await changes.next()) is not None:
                operation = await call.aside(self._writer.write, job)
                yield pb.WatchOperationResponse(operation=operation)
                if job.state.done:
                    return
        raise Unavailable("the server is draining; the job continues elsewhere or later")

    def PreviewAnchors(
        self, request: pb.PreviewAnchorsRequest, call: Call
    ) -> pb.PreviewAnchorsResponse:
        """Show what the model saw at a few anchors of a job that succeeded."""
        job = self._jobs.get(read_name(request.name))
        spec = self._jobs.fill(job.spec)
        if not isinstance(spec, ScoreSpec):
            raise InvalidArgument(
                "name", f"{request.name} is a {job.kind} job, which has no pictures"
            )
        if job.state is not JobState.SUCCEEDED or job.result is None:
            raise FailedPrecondition(
                f"{request.name} is {job.state}; only a job that succeeded has pictures",
                reason="OPERATION_NOT_SUCCEEDED",
            )
        previews = preview_anchors(self._readers, spec, job.result, request.anchors, request.draw)
        return previews.to_message()

    def RunStudy(self, request: study_pb.RunStudyRequest, call: Call) -> ops.Operation:
        """Queue a study; everything that can be checked is checked before it is queued."""
        asked = read(StudyRequest, request)
        study = asked.study
        assert study is not None  # noqa: S101 - checked
        if isinstance(study, PlannerStudy):
            study = replace(study, goal_offset=goal_offset(study))
            check(study, study.kind)
        if not isinstance(study, SensitivityStudy):
            study = self._jobs.fill(study, f"{study.kind}.shifts")
            require_known(study.shifts, f"{study.kind}.shifts[{{}}]")
        readers = self._readers
        source = read_anchors(asked.anchors, readers, study)
        if isinstance(study, DriftStudy | PlannerStudy):
            study = resolved(study, readers.reading(source))
            source = read_anchors(asked.anchors, readers, study)  # the count follows the reading
        if isinstance(study, SensitivityStudy):
            group, count, field = study.directions, study.probes, "probes"
            groups = [(f"{DIRECTIONS}{group}", f"{study.kind}.directions")] if group else []
        else:
            groups = _given_views(study.shifts, f"{study.kind}.shifts[{{}}]")
            count, field = study.draws, "draws"
        spec = StudySpec.of(
            asked,
            anchors=source,
            checkpoint=self._pinned(asked.checkpoint),
            study=study,
            numeric_mode=asked.numeric_mode or NumericMode.FP32,
            view_digests=readers.given(source, groups, count, f"{study.kind}.{field}"),
        )
        self._studies.check(spec)
        return self._submit(spec, request.request_id, call)

    def _own(self, name: str, call: Call) -> str:
        """Return the id of a job that the caller may end; PermissionDenied for one of others."""
        job_id, owner = self._jobs.owner(read_name(name))
        require_owner(call.principal, owner, f"{PREFIX}{job_id}")
        return job_id

    def _pinned(self, ref: CheckpointRef, field: str = "checkpoint") -> CheckpointRef:
        return load(self._checkpoints, ref, field).pinned()

    def _submit(self, spec: JobSpec, request_id: str, call: Call) -> ops.Operation:
        # Only the message's own id makes a submission idempotent, not a tracing header.
        return self._writer.write(self._jobs.submit(spec, request_id, call.principal.owner))

    def _spec(self, asked: ScoreRequest) -> ScoreSpec:
        readers = self._readers
        open_count, asked = asked.open_count, asked.decided()
        source = read_anchors(asked.anchors, readers)
        asked.check_looks(source.count)
        protocol = resolved(asked.protocol, readers.reading(source))
        for field, values in (("draws", protocol.draws), ("horizon", protocol.horizon)):
            if source.count * values > MAX_RADII:
                raise InvalidArgument(
                    f"protocol.{field}",
                    f"{values} values for each of {source.count} anchors are over {MAX_RADII}",
                )
        with below("protocol"):
            horizon_weights(protocol.weights, protocol.horizon)
        shift = self._jobs.fill(asked.shift, "perturbation")
        require_known([shift], "perturbation")
        against = asked.reference
        # Of the dataset, unless its anchors were uploaded.
        uploaded = isinstance(source, AnchorSetSource) and source.window_future_frames is None
        usual = Population.TRAJECTORIES if uploaded else Population.DATASET
        population = asked.evidence.population or usual
        spec = ScoreSpec.of(
            asked,
            checkpoint=self._pinned(asked.checkpoint),
            reference=against and self._pinned(against, "reference"),
            anchors=source,
            shift=shift,
            protocol=protocol,
            evidence=replace(asked.evidence, population=population),
            numeric_mode=asked.numeric_mode or NumericMode.FP32,
            view_digests=readers.given(
                source, _given_views([shift], "perturbation"), protocol.draws, "protocol.draws"
            ),
        )
        return self._scoring.within(spec) if open_count else spec


def _given_views(shifts: Sequence[VisualChange], path: str) -> list[tuple[str, str]]:
    """List the arrays of given views, and the fields that name their groups.

    ``path`` is that of a shift, with its index as ``{}``.
    """
    return [
        (f"{VIEWS}{shift.group}", f"{path.format(index)}.{shift.kind}.group")
        for index, shift in enumerate(shifts)
        if isinstance(shift, GivenViews)
    ]

"""StudyService: the paper's studies as jobs."""

from __future__ import annotations

from dataclasses import replace

import grpc
from acpc.contract import PlannerStudy, SensitivityStudy, StudyRequest, check
from acpc.v1 import study_service_pb2 as pb
from acpc.v1 import study_service_pb2_grpc as pb_grpc
from google.longrunning import operations_pb2

from acpc_server.encoding import AnchorReaders
from acpc_server.engine import CheckpointCache
from acpc_server.jobs import JobService
from acpc_server.perturb import require_known
from acpc_server.rpc.operations import OperationWriter
from acpc_server.rpc.request import named, read, read_anchors, read_mode
from acpc_server.studies import StudyJobKind, StudySpec, goal_offset


class StudyServicer(pb_grpc.StudyServiceServicer):
    """Accepts studies."""

    def __init__(
        self,
        checkpoints: CheckpointCache,
        studies: StudyJobKind,
        readers: AnchorReaders,
        jobs: JobService,
        writer: OperationWriter,
    ) -> None:
        self._checkpoints = checkpoints
        self._studies = studies
        self._readers = readers
        self._jobs = jobs
        self._writer = writer

    def RunStudy(
        self, request: pb.RunStudyRequest, context: grpc.ServicerContext
    ) -> operations_pb2.Operation:
        """Queue a study; everything that can be checked is checked before it is queued."""
        asked = read(StudyRequest, request)
        study = asked.study
        assert study is not None  # noqa: S101 - checked
        if isinstance(study, PlannerStudy):
            study = replace(study, goal_offset=goal_offset(study))
            check(study, study.kind)
        if not isinstance(study, SensitivityStudy):
            require_known(study.shifts, f"{study.kind}.shifts[{{}}]")
        spec = StudySpec(
            anchors=read_anchors(asked.anchors, self._readers, type(study)),
            checkpoint=named(self._checkpoints, asked.checkpoint),
            study=study,
            numeric_mode=read_mode(asked.numeric_mode),
        )
        self._studies.check(spec)
        # Only the message's own id makes a submission idempotent, not a tracing header.
        return self._writer.write(self._jobs.submit(spec, request.request_id))

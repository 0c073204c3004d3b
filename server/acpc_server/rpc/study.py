"""StudyService: the paper's studies as jobs."""

from __future__ import annotations

import grpc
from acpc.v1 import study_service_pb2 as pb
from acpc.v1 import study_service_pb2_grpc as pb_grpc
from google.longrunning import operations_pb2

from acpc_server.encoding import AnchorReaders
from acpc_server.engine import CheckpointCache
from acpc_server.jobs import JobService
from acpc_server.rpc import codec
from acpc_server.rpc.job_messages import OperationWriter
from acpc_server.rpc.request import load, request_id
from acpc_server.rpc.sources import read_source
from acpc_server.rpc.study_requests import read_study, with_study_defaults
from acpc_server.studies import StudyJobKind, StudySpec


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
        request_id(request)
        study = read_study(request)
        source = read_source(with_study_defaults(request), self._readers, least=2)
        mode = codec.read_mode(request.numeric_mode)
        loaded = load(self._checkpoints, request.checkpoint)
        spec = StudySpec(
            checkpoint=loaded.pinned(),
            anchors=source,
            study=study,
            numeric_mode=mode,
        )
        self._studies.check(spec)
        # Only the message's own id makes a submission idempotent, not a tracing header.
        return self._writer.write(self._jobs.submit(spec, request.request_id))

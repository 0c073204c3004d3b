"""google.longrunning.Operations, served as it stands, over the jobs."""

from __future__ import annotations

import grpc
from google.longrunning import operations_pb2, operations_pb2_grpc
from google.protobuf import empty_pb2

from acpc_server.errors import InvalidArgument, NotFound
from acpc_server.jobs import JobService
from acpc_server.rpc.job_filter import read_filter
from acpc_server.rpc.job_messages import PREFIX, OperationWriter
from acpc_server.rpc.paging import read_page, write_token

WAIT_SECONDS = 60.0


class OperationsServicer(operations_pb2_grpc.OperationsServicer):  # type: ignore[misc]
    """Get, list, cancel, wait for and delete jobs.

    Args:
        jobs: Jobs of every kind.
        writer: Their form on the wire.
    """

    def __init__(self, jobs: JobService, writer: OperationWriter) -> None:
        self._jobs = jobs
        self._writer = writer

    def GetOperation(
        self, request: operations_pb2.GetOperationRequest, context: grpc.ServicerContext
    ) -> operations_pb2.Operation:
        """One operation."""
        return self._writer.write(self._jobs.get(read_name(request.name)))

    def ListOperations(
        self, request: operations_pb2.ListOperationsRequest, context: grpc.ServicerContext
    ) -> operations_pb2.ListOperationsResponse:
        """A page of operations, newest first, without their responses.

        Responses are large; GetOperation has them. See :func:`read_filter` for ``filter``.
        """
        if request.name not in ("", "operations"):
            raise InvalidArgument("name", f"{request.name!r}; operations live in 'operations'")
        page = read_page(request.page_size, request.page_token)
        wanted = read_filter(request.filter, self._writer.kinds)
        rows = self._jobs.list(page.start, len(page) + 1, wanted)
        more = page.stop if len(rows) > len(page) else None
        return operations_pb2.ListOperationsResponse(
            operations=[self._writer.write(job) for job in rows[: len(page)]],
            next_page_token=write_token(more),
        )

    def CancelOperation(
        self, request: operations_pb2.CancelOperationRequest, context: grpc.ServicerContext
    ) -> empty_pb2.Empty:
        """Stop a job at its next chunk."""
        self._jobs.cancel(read_name(request.name))
        return empty_pb2.Empty()

    def DeleteOperation(
        self, request: operations_pb2.DeleteOperationRequest, context: grpc.ServicerContext
    ) -> empty_pb2.Empty:
        """Forget a finished job."""
        self._jobs.delete(read_name(request.name))
        return empty_pb2.Empty()

    def WaitOperation(
        self, request: operations_pb2.WaitOperationRequest, context: grpc.ServicerContext
    ) -> operations_pb2.Operation:
        """The operation once it is done, or as it is when the timeout passes."""
        seconds = WAIT_SECONDS
        if request.HasField("timeout"):
            seconds = request.timeout.seconds + request.timeout.nanos / 1e9
            if seconds < 0:
                raise InvalidArgument("timeout", f"{seconds} s is negative")
        remaining = context.time_remaining()
        if remaining is not None:
            # Answer before the caller's own deadline rather than miss it.
            seconds = min(seconds, max(0.0, 0.9 * remaining))
        job = self._jobs.wait(
            read_name(request.name), min(seconds, WAIT_SECONDS), context.is_active
        )
        return self._writer.write(job)


def read_name(name: str) -> str:
    """The job id of ``operations/<id>``; InvalidArgument for any other name."""
    job_id = name.removeprefix(PREFIX)
    if not name.startswith(PREFIX) or not job_id:
        raise InvalidArgument("name", f"{name!r}; an operation is named operations/<id>")
    if len(job_id) > 64 or not job_id.isascii() or not job_id.isprintable():
        raise NotFound("no operation has that name")
    return job_id

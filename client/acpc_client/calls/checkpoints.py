"""CheckpointService and DatasetService."""

from __future__ import annotations

from acpc.contract import Checkpoint, CheckpointRef, DatasetFile, LoadedCheckpoint, TaskSummary
from acpc.v1 import checkpoint_service_pb2 as pb
from acpc.v1 import dataset_service_pb2 as dataset_pb
from acpc.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from acpc.v1.dataset_service_pb2_grpc import DatasetServiceStub

from acpc_client.calls.call import Method, Page, PreparedCall, identity, list_call, reference
from acpc_client.inputs import unsigned

LIST = Method(CheckpointServiceStub, "ListCheckpoints", timeout=30.0)
GET = Method(CheckpointServiceStub, "GetCheckpoint", timeout=30.0)
LOAD = Method(CheckpointServiceStub, "LoadCheckpoint", timeout=300.0)
UNLOAD = Method(CheckpointServiceStub, "UnloadCheckpoint", timeout=30.0)


def list_page(page_size: int, token: str, show_all: bool) -> PreparedCall[Page[Checkpoint]]:
    """The call that reads one page of checkpoints."""
    size = unsigned(page_size, "page_size")
    request = pb.ListCheckpointsRequest(page_size=size, page_token=token, show_all=show_all)
    return list_call(LIST, request, "checkpoints", Checkpoint.from_message)


def get(checkpoint: str | CheckpointRef) -> PreparedCall[Checkpoint]:
    """The call that reads one checkpoint."""
    request = pb.GetCheckpointRequest(checkpoint=reference(checkpoint))
    return PreparedCall(GET, request, _checkpoint)


def load(
    checkpoint: str | CheckpointRef, pin: bool, request_id: str | None
) -> PreparedCall[LoadedCheckpoint]:
    """The call that reads a checkpoint onto the device."""
    request = pb.LoadCheckpointRequest(
        request_id=identity(request_id), checkpoint=reference(checkpoint), pin=pin
    )
    return PreparedCall(LOAD, request, LoadedCheckpoint.from_message, request.request_id)


def unload(checkpoint: str | CheckpointRef, request_id: str | None) -> PreparedCall[Checkpoint]:
    """The call that frees the device memory of a checkpoint."""
    request = pb.UnloadCheckpointRequest(
        request_id=identity(request_id), checkpoint=reference(checkpoint)
    )
    return PreparedCall(UNLOAD, request, _checkpoint, request.request_id)


def _checkpoint(answer: pb.GetCheckpointResponse | pb.UnloadCheckpointResponse) -> Checkpoint:
    return Checkpoint.from_message(answer.checkpoint)


DATASETS = Method(DatasetServiceStub, "ListDatasets", timeout=30.0)
TASKS = Method(DatasetServiceStub, "ListTasks", timeout=30.0)


def datasets_page(page_size: int, token: str) -> PreparedCall[Page[DatasetFile]]:
    """The call that reads one page of datasets."""
    size = unsigned(page_size, "page_size")
    request = dataset_pb.ListDatasetsRequest(page_size=size, page_token=token)
    return list_call(DATASETS, request, "datasets", DatasetFile.from_message)


def tasks_page(page_size: int, token: str) -> PreparedCall[Page[TaskSummary]]:
    """The call that reads one page of tasks."""
    size = unsigned(page_size, "page_size")
    request = dataset_pb.ListTasksRequest(page_size=size, page_token=token)
    return list_call(TASKS, request, "tasks", TaskSummary.from_message)

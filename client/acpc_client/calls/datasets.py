"""DatasetService."""

from __future__ import annotations

from acpc.contract import DatasetFile, TaskSummary
from acpc.v1 import dataset_service_pb2 as pb
from acpc.v1.dataset_service_pb2_grpc import DatasetServiceStub

from acpc_client.calls.base import list_call
from acpc_client.calls.call import Call, Method, Page
from acpc_client.inputs import unsigned

LIST = Method(DatasetServiceStub, "ListDatasets", timeout=30.0)
TASKS = Method(DatasetServiceStub, "ListTasks", timeout=30.0)


def list_page(page_size: int, token: str) -> Call[Page[DatasetFile]]:
    """The call that reads one page of datasets."""
    size = unsigned(page_size, "page_size")
    request = pb.ListDatasetsRequest(page_size=size, page_token=token)
    return list_call(LIST, request, "datasets", DatasetFile.from_message)


def tasks_page(page_size: int, token: str) -> Call[Page[TaskSummary]]:
    """The call that reads one page of tasks."""
    size = unsigned(page_size, "page_size")
    request = pb.ListTasksRequest(page_size=size, page_token=token)
    return list_call(TASKS, request, "tasks", TaskSummary.from_message)

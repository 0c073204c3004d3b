"""DatasetService."""

from __future__ import annotations

from acpc.contract import DatasetFile, TaskSummary
from acpc.v1 import dataset_service_pb2 as pb
from acpc.v1.dataset_service_pb2_grpc import DatasetServiceStub

from acpc_client.calls.call import Call, Method, Page
from acpc_client.inputs import unsigned

LIST = Method(DatasetServiceStub, "ListDatasets", timeout=30.0)
TASKS = Method(DatasetServiceStub, "ListTasks", timeout=30.0)


def list_page(page_size: int, token: str) -> Call[Page[DatasetFile]]:
    """The call that reads one page of datasets."""
    size = unsigned(page_size, "page_size")
    return Call(LIST, pb.ListDatasetsRequest(page_size=size, page_token=token), _datasets)


def tasks_page(page_size: int, token: str) -> Call[Page[TaskSummary]]:
    """The call that reads one page of tasks."""
    size = unsigned(page_size, "page_size")
    return Call(TASKS, pb.ListTasksRequest(page_size=size, page_token=token), _tasks)


def _datasets(answer: pb.ListDatasetsResponse) -> Page[DatasetFile]:
    items = tuple(DatasetFile.from_message(message) for message in answer.datasets)
    return Page(items, answer.next_page_token)


def _tasks(answer: pb.ListTasksResponse) -> Page[TaskSummary]:
    items = tuple(TaskSummary.from_message(message) for message in answer.tasks)
    return Page(items, answer.next_page_token)

"""DatasetService: what is below the dataset root."""

from __future__ import annotations

from acpc.v1 import dataset_service_pb2 as pb

from acpc_server.data import DatasetStore
from acpc_server.rpc.call import Call
from acpc_server.rpc.request import read_page, write_token


class DatasetServicer:
    """Lists datasets and tasks, which are the server's and shared by tenants."""

    def __init__(self, datasets: DatasetStore) -> None:
        self._datasets = datasets

    def ListDatasets(
        self, request: pb.ListDatasetsRequest, context: Call
    ) -> pb.ListDatasetsResponse:
        """A page of the datasets below the root, by name."""
        page, entries = read_page(request.page_size, request.page_token), self._datasets.datasets()
        return pb.ListDatasetsResponse(
            datasets=[entry.to_message() for entry in entries[page.start : page.stop]],
            next_page_token=write_token(page.stop if page.stop < len(entries) else None),
        )

    def ListTasks(self, request: pb.ListTasksRequest, context: Call) -> pb.ListTasksResponse:
        """A page of the presets and then of the task files below the root, by name."""
        page, entries = read_page(request.page_size, request.page_token), self._datasets.tasks()
        return pb.ListTasksResponse(
            tasks=[entry.to_message() for entry in entries[page.start : page.stop]],
            next_page_token=write_token(page.stop if page.stop < len(entries) else None),
        )

"""CheckpointService and DatasetService: what is below the roots, and what is on the device."""

from __future__ import annotations

import time
from dataclasses import dataclass

from acpc.contract import MAX_REQUEST_ID, CheckpointRef, Timing
from acpc.v1 import checkpoint_service_pb2 as pb
from acpc.v1 import dataset_service_pb2 as data_pb

from acpc_server.data import DatasetStore
from acpc_server.engine import CheckpointCache
from acpc_server.errors import InvalidArgument
from acpc_server.rpc.call import Call
from acpc_server.rpc.request import load, page_of, read


@dataclass(frozen=True)
class CatalogServicer:
    """Lists datasets, tasks and checkpoints, and loads and unloads the latter.

    All callers share them, so that only the role admin loads and unloads. The others lose time by
    it, never an answer: what holds a checkpoint finishes with it.
    """

    _checkpoints: CheckpointCache
    _datasets: DatasetStore

    def ListCheckpoints(
        self, request: pb.ListCheckpointsRequest, call: Call
    ) -> pb.ListCheckpointsResponse:
        """List a page of the checkpoints below the root, by name."""
        entries, token = page_of(request, self._checkpoints.entries(request.show_all))
        return pb.ListCheckpointsResponse(checkpoints=entries, next_page_token=token)

    def GetCheckpoint(
        self, request: pb.GetCheckpointRequest, call: Call
    ) -> pb.GetCheckpointResponse:
        """Describe one checkpoint, without loading it."""
        ref = read(CheckpointRef, request.checkpoint, "checkpoint")
        entry = self._checkpoints.content(ref.name, ref.weights)
        return pb.GetCheckpointResponse(checkpoint=entry.to_message())

    def LoadCheckpoint(
        self, request: pb.LoadCheckpointRequest, call: Call
    ) -> pb.LoadCheckpointResponse:
        """Read a checkpoint onto the device."""
        started = time.perf_counter()
        loaded = load(self._checkpoints, _named(request))
        if request.pin:
            self._checkpoints.pin(loaded)
        return pb.LoadCheckpointResponse(
            checkpoint=self._checkpoints.entry(loaded.name, loaded.weights).to_message(),
            timing=Timing(total=time.perf_counter() - started).to_message(),
        )

    def UnloadCheckpoint(
        self, request: pb.UnloadCheckpointRequest, call: Call
    ) -> pb.UnloadCheckpointResponse:
        """Free the device memory of a checkpoint."""
        ref = _named(request)
        entry = self._checkpoints.unload(ref.name, ref.weights)
        return pb.UnloadCheckpointResponse(checkpoint=entry.to_message())

    def ListDatasets(
        self, request: data_pb.ListDatasetsRequest, call: Call
    ) -> data_pb.ListDatasetsResponse:
        """List a page of the datasets below the root, by name."""
        entries, token = page_of(request, self._datasets.datasets())
        return data_pb.ListDatasetsResponse(datasets=entries, next_page_token=token)

    def ListTasks(self, request: data_pb.ListTasksRequest, call: Call) -> data_pb.ListTasksResponse:
        """List a page of the presets and then of the task files below the root, by name."""
        entries, token = page_of(request, self._datasets.tasks())
        return data_pb.ListTasksResponse(tasks=entries, next_page_token=token)


def _named(request: pb.LoadCheckpointRequest | pb.UnloadCheckpointRequest) -> CheckpointRef:
    if len(request.request_id) > MAX_REQUEST_ID:
        raise InvalidArgument("request_id", f"longer than {MAX_REQUEST_ID} characters")
    return read(CheckpointRef, request.checkpoint, "checkpoint")

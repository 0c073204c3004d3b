"""CheckpointService: what is below the root, and what is on the device."""

from __future__ import annotations

import time

from acpc.contract import CheckpointRef, Timing
from acpc.v1 import checkpoint_service_pb2 as pb

from acpc_server.engine import CheckpointCache
from acpc_server.rpc.call import Call
from acpc_server.rpc.request import load, read, read_page, request_id, write_token


class CheckpointServicer:
    """Lists, loads and unloads checkpoints.

    They are the server's and shared by tenants, so that only the role admin loads and unloads. A
    tenant loses time by it, never an answer: what holds a checkpoint finishes with it.
    """

    def __init__(self, checkpoints: CheckpointCache) -> None:
        self._checkpoints = checkpoints

    def ListCheckpoints(
        self, request: pb.ListCheckpointsRequest, context: Call
    ) -> pb.ListCheckpointsResponse:
        """A page of the checkpoints below the root, by name."""
        page = read_page(request.page_size, request.page_token)
        entries = self._checkpoints.entries()
        return pb.ListCheckpointsResponse(
            checkpoints=[entry.to_message() for entry in entries[page.start : page.stop]],
            next_page_token=write_token(page.stop if page.stop < len(entries) else None),
        )

    def GetCheckpoint(
        self, request: pb.GetCheckpointRequest, context: Call
    ) -> pb.GetCheckpointResponse:
        """One checkpoint, without loading it."""
        ref = read(CheckpointRef, request.checkpoint, "checkpoint")
        entry = self._checkpoints.entry(ref.name, ref.weights)
        return pb.GetCheckpointResponse(checkpoint=entry.to_message())

    def LoadCheckpoint(
        self, request: pb.LoadCheckpointRequest, context: Call
    ) -> pb.LoadCheckpointResponse:
        """Read a checkpoint onto the device."""
        started = time.perf_counter()
        request_id(request)
        loaded = load(self._checkpoints, read(CheckpointRef, request.checkpoint, "checkpoint"))
        if request.pin:
            self._checkpoints.pin(loaded)
        return pb.LoadCheckpointResponse(
            checkpoint=self._checkpoints.entry(loaded.name, loaded.weights).to_message(),
            timing=Timing(total=time.perf_counter() - started).to_message(),
        )

    def UnloadCheckpoint(
        self, request: pb.UnloadCheckpointRequest, context: Call
    ) -> pb.UnloadCheckpointResponse:
        """Free the device memory of a checkpoint."""
        request_id(request)
        ref = read(CheckpointRef, request.checkpoint, "checkpoint")
        entry = self._checkpoints.unload(ref.name, ref.weights)
        return pb.UnloadCheckpointResponse(checkpoint=entry.to_message())

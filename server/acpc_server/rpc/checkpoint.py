"""CheckpointService: what is below the root, and what is on the device."""

from __future__ import annotations

import time

import grpc
from acpc.contract import Timing
from acpc.v1 import checkpoint_service_pb2 as pb
from acpc.v1 import checkpoint_service_pb2_grpc as pb_grpc

from acpc_server.engine import CheckpointCache, CheckpointStatus
from acpc_server.rpc.paging import read_page, write_token
from acpc_server.rpc.request import check_ref, load, request_id


class CheckpointServicer(pb_grpc.CheckpointServiceServicer):
    """Lists, loads and unloads checkpoints."""

    def __init__(self, checkpoints: CheckpointCache) -> None:
        self._checkpoints = checkpoints

    def ListCheckpoints(
        self, request: pb.ListCheckpointsRequest, context: grpc.ServicerContext
    ) -> pb.ListCheckpointsResponse:
        """A page of the checkpoints below the root, by name."""
        page = read_page(request.page_size, request.page_token)
        entries = self._checkpoints.entries()
        return pb.ListCheckpointsResponse(
            checkpoints=[_write(entry) for entry in entries[page.start : page.stop]],
            next_page_token=write_token(page.stop if page.stop < len(entries) else None),
        )

    def GetCheckpoint(
        self, request: pb.GetCheckpointRequest, context: grpc.ServicerContext
    ) -> pb.GetCheckpointResponse:
        """One checkpoint, without loading it."""
        check_ref(request.checkpoint, "checkpoint")
        entry = self._checkpoints.entry(request.checkpoint.name, request.checkpoint.weights)
        return pb.GetCheckpointResponse(checkpoint=_write(entry))

    def LoadCheckpoint(
        self, request: pb.LoadCheckpointRequest, context: grpc.ServicerContext
    ) -> pb.LoadCheckpointResponse:
        """Read a checkpoint onto the device."""
        started = time.perf_counter()
        request_id(request)
        loaded = load(self._checkpoints, request.checkpoint)
        if request.pin:
            self._checkpoints.pin(loaded)
        return pb.LoadCheckpointResponse(
            checkpoint=_write(self._checkpoints.entry(loaded.name, loaded.weights)),
            timing=Timing(total=time.perf_counter() - started).to_message(),
        )

    def UnloadCheckpoint(
        self, request: pb.UnloadCheckpointRequest, context: grpc.ServicerContext
    ) -> pb.UnloadCheckpointResponse:
        """Free the device memory of a checkpoint."""
        request_id(request)
        check_ref(request.checkpoint, "checkpoint")
        entry = self._checkpoints.unload(request.checkpoint.name, request.checkpoint.weights)
        return pb.UnloadCheckpointResponse(checkpoint=_write(entry))


def _write(entry: CheckpointStatus) -> pb.Checkpoint:
    card = entry.card
    return pb.Checkpoint(
        name=entry.name,
        weights=entry.weights,
        state=pb.CHECKPOINT_STATE_AVAILABLE if card is None else pb.CHECKPOINT_STATE_LOADED,
        size_bytes=entry.size_bytes,
        pinned=entry.pinned,
        model=None
        if card is None
        else pb.ModelCard(
            family=card.family,
            digest=card.digest,
            image_size=card.image_size,
            latent_dim=card.latent_dim,
            history=card.history,
            action_block_dim=card.action_block_dim,
            parameter_count=card.parameter_count,
        ),
    )

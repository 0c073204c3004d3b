"""Answers of CheckpointService."""

from __future__ import annotations

from dataclasses import dataclass

from acpc.contract import Record, Timing, WireEnum
from acpc.v1 import checkpoint_service_pb2 as pb


class CheckpointState(WireEnum):
    """Where a checkpoint is."""

    UNSPECIFIED = 0
    AVAILABLE = 1
    LOADED = 2


@dataclass(frozen=True, repr=False, eq=False)
class ModelCard(Record):
    """What a loaded checkpoint is.

    Attributes:
        family: ``"lewm"``, ``"pldm"``, or the name of a plug-in.
        digest: sha256 over the configuration and every tensor.
        image_size: Side of the square input, in pixels.
        latent_dim: Width of the projected latent space.
        history: Longest history the predictor sees, in frames.
        action_block_dim: Width of one action block: frameskip x action_dim.
        parameter_count: Number of parameters.
    """

    family: str
    digest: str
    image_size: int
    latent_dim: int
    history: int
    action_block_dim: int
    parameter_count: int

    @classmethod
    def from_message(cls, message: pb.ModelCard) -> ModelCard:
        """Reads the wire form."""
        return cls(
            family=message.family,
            digest=message.digest,
            image_size=message.image_size,
            latent_dim=message.latent_dim,
            history=message.history,
            action_block_dim=message.action_block_dim,
            parameter_count=message.parameter_count,
        )


@dataclass(frozen=True, repr=False, eq=False)
class Checkpoint(Record):
    """A checkpoint below the server's root.

    Attributes:
        name: Folder path relative to the root.
        weights: The weights file this entry stands for.
        state: On disk, or on the device.
        size_bytes: Size of the weights file.
        model: None until the checkpoint is loaded.
        pinned: Pinned checkpoints are not evicted.
    """

    name: str
    weights: str
    state: CheckpointState
    size_bytes: int
    model: ModelCard | None
    pinned: bool

    @classmethod
    def from_message(cls, message: pb.Checkpoint) -> Checkpoint:
        """Reads the wire form."""
        model = message.model if message.HasField("model") else None
        return cls(
            name=message.name,
            weights=message.weights,
            state=CheckpointState(message.state),
            size_bytes=message.size_bytes,
            model=None if model is None else ModelCard.from_message(model),
            pinned=message.pinned,
        )


@dataclass(frozen=True, repr=False, eq=False)
class LoadedCheckpoint(Record):
    """Answer of ``checkpoints.load``."""

    checkpoint: Checkpoint
    timing: Timing

    @classmethod
    def from_message(cls, message: pb.LoadCheckpointResponse) -> LoadedCheckpoint:
        """Reads the wire form."""
        return cls(Checkpoint.from_message(message.checkpoint), Timing.from_message(message.timing))

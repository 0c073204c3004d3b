"""Answers of CheckpointService."""

from __future__ import annotations

from dataclasses import dataclass

from acpc.contract.enums import WireEnum
from acpc.contract.messages import Wire
from acpc.contract.provenance import Timing
from acpc.contract.record import Record
from acpc.v1 import checkpoint_service_pb2 as pb


class CheckpointState(WireEnum):
    """Where a checkpoint is."""

    UNSPECIFIED = 0
    AVAILABLE = 1
    LOADED = 2


@dataclass(frozen=True, repr=False)
class ModelCard(Record, Wire[pb.ModelCard]):
    """What a loaded checkpoint is.

    Attributes:
        family: ``"lewm"``, ``"pldm"``, ``"prejepa"``, or the name of a plug-in.
        digest: sha256 over the configuration and every tensor.
        image_size: Side of the square input, in pixels.
        latent_dim: Width of the projected latent space.
        history: Longest history the predictor sees, in frames.
        action_block_dim: Width of one action block: frameskip x action_dim.
        parameter_count: Number of parameters.
        proprio_dim: Width of the proprioception that goes with every frame; 0: it takes none.
        latent_tokens: Tokens that a latent is made of; 0: it is one vector.
        model_digest: sha256 over the network's own names, numbers and tensors: equal for files
            that hold one model under other names or in another container.
    """

    family: str
    digest: str
    image_size: int
    latent_dim: int
    history: int
    action_block_dim: int
    parameter_count: int
    proprio_dim: int = 0
    latent_tokens: int = 0
    model_digest: str = ""


@dataclass(frozen=True, repr=False)
class Checkpoint(Record, Wire[pb.Checkpoint]):
    """A checkpoint below the server's root.

    Attributes:
        name: Folder path relative to the root.
        weights: The weights file this entry stands for.
        state: On disk, or on the device.
        size_bytes: Size of the weights file.
        model: None until the checkpoint is loaded.
        pinned: Pinned checkpoints are not evicted.
        problem: Why what lies here cannot be loaded as it is; empty: nothing is known.
        next_command: What helps with it, in a shell in the server's root; empty: nothing does.
    """

    name: str
    weights: str
    state: CheckpointState
    size_bytes: int
    model: ModelCard | None
    pinned: bool
    problem: str = ""
    next_command: str = ""


@dataclass(frozen=True, repr=False)
class LoadedCheckpoint(Record, Wire[pb.LoadCheckpointResponse]):
    """Answer of ``checkpoints.load``."""

    checkpoint: Checkpoint
    timing: Timing

"""Answers of CheckpointService and DatasetService: what a server serves."""

from __future__ import annotations

from dataclasses import dataclass

from acpc.contract.enums import WireEnum
from acpc.contract.messages import Wire
from acpc.contract.provenance import Timing
from acpc.contract.record import Record
from acpc.v1 import checkpoint_service_pb2 as pb
from acpc.v1 import dataset_service_pb2


class CheckpointState(WireEnum):
    """Whether a checkpoint is loaded."""

    UNSPECIFIED = 0
    AVAILABLE = 1
    LOADED = 2


@dataclass(frozen=True, repr=False)
class ModelCard(Record, Wire[pb.ModelCard]):
    """Facts about a loaded checkpoint.

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


@dataclass(frozen=True, repr=False)
class DatasetFile(Record, Wire[dataset_service_pb2.DatasetFile]):
    """A dataset below the server's dataset root.

    Attributes:
        name: Path below the root: what ``DatasetAnchors.dataset`` takes, of HDF5 files.
        size_bytes: Size of the file; 0 for a folder.
        format: ``hdf5``, which the server reads; ``lance``, of which ``acpc anchors upload`` makes
            an anchor set where it lies; or one that is to be converted: ``folder``, ``video``,
            ``lerobot``, ``dino-wm`` or ``zarr``. Empty: an older server's HDF5 file.
    """

    name: str
    size_bytes: int
    format: str = ""


@dataclass(frozen=True, repr=False)
class TaskSummary(Record, Wire[dataset_service_pb2.TaskSummary]):
    """A task preset, or a task file, of which only the name is known until it is used.

    Attributes:
        name: What ``DatasetAnchors.task`` takes.
        description: What it is, in a sentence.
        pixels: Column of frames.
        action: Column of actions.
        state: Column of states.
        frameskip: Environment steps between kept frames; 0 for a file.
        history: Frames of history; 0 for a file.
    """

    name: str
    description: str = ""
    pixels: str = ""
    action: str = ""
    state: str = ""
    frameskip: int = 0
    history: int = 0

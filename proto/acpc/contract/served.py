"""Answers of CheckpointService and DatasetService: what a server serves."""

from __future__ import annotations

from acpc.contract.enums import WireEnum
from acpc.contract.messages import Wire
from acpc.contract.provenance import Timing
from acpc.contract.record import Record
from acpc.v1 import checkpoint_service_pb2 as pb
from acpc.v1 import dataset_service_pb2


class CheckpointState(WireEnum):
    UNSPECIFIED = 0
    AVAILABLE = 1
    LOADED = 2


class ModelCard(Record, Wire[pb.ModelCard], eq=True):
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
    weights_read: str = ""


class Checkpoint(Record, Wire[pb.Checkpoint], eq=True):
    name: str
    weights: str
    state: CheckpointState
    size_bytes: int
    model: ModelCard | None
    pinned: bool
    problem: str = ""
    next_command: str = ""
    stamp: str = ""
    content: str = ""


class LoadedCheckpoint(Record, Wire[pb.LoadCheckpointResponse], eq=True):
    checkpoint: Checkpoint
    timing: Timing


class DatasetFile(Record, Wire[dataset_service_pb2.DatasetFile], eq=True):
    name: str
    size_bytes: int
    format: str = ""


class TaskSummary(Record, Wire[dataset_service_pb2.TaskSummary], eq=True):
    name: str
    description: str = ""
    pixels: str = ""
    action: str = ""
    state: str = ""
    frameskip: int = 0
    history: int = 0


WEIGHTS_SUFFIXES = (".pt", ".safetensors", ".ckpt")
OBJECT_SUFFIX = "_object.ckpt"
"""Ends the name of a pickled model, which is imported and never loaded."""


def is_weights_name(name: str) -> bool:
    """Whether a server lists and loads a file of this name, beside a ``config.json``."""
    return name.endswith(WEIGHTS_SUFFIXES) and not name.endswith(OBJECT_SUFFIX)

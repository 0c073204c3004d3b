"""Answers of DatasetService."""

from __future__ import annotations

from dataclasses import dataclass

from acpc.contract.messages import Wire
from acpc.contract.record import Record
from acpc.v1 import dataset_service_pb2 as pb


@dataclass(frozen=True, repr=False)
class DatasetFile(Record, Wire[pb.DatasetFile]):
    """A dataset below the server's dataset root.

    Attributes:
        name: Path below the root: what ``DatasetAnchors.dataset`` takes, of HDF5 files.
        size_bytes: Size of the file; 0 for a folder.
        format: ``hdf5``, which the server reads; or ``lance``, ``folder``, ``video`` or
            ``lerobot``, of which ``acpc anchors upload`` makes anchor sets where they lie. Empty:
            an older server's HDF5 file.
    """

    name: str
    size_bytes: int
    format: str = ""


@dataclass(frozen=True, repr=False)
class TaskSummary(Record, Wire[pb.TaskSummary]):
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

"""Checkpoints and a dataset on disk for a server to serve, and what a test may know about them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
from acpc_client.sync.client import AcpcClient
from public_checkpoint import public_config, write_checkpoint
from public_dataset import PublicColumns, public_columns, write_public_dataset
from reference_model import ReferenceModel
from server_process import ServerProcess

# Name of the folder: family and seed of its weights. Block width is frameskip 5 x 2 actions.
SMALL = {"lewm": ("lewm", 0), "lewm-base": ("lewm", 3), "pldm": ("pldm", 1)}
EPISODES = (60, 1, 80, 34, 100)
FRAME_SIDE = 36


@dataclass(frozen=True)
class ServedWorld:
    """Roots of a server, and the content of ``tworoom.h5``."""

    checkpoint_root: Path
    dataset_root: Path
    state_dir: Path
    columns: PublicColumns

    def server(self, state_dir: Path | None = None, **flags: object) -> ServerProcess:
        state = state_dir or self.state_dir
        return ServerProcess(self.checkpoint_root, self.dataset_root, state, **flags)

    @staticmethod
    def reference(name: str) -> ReferenceModel:
        family, seed = SMALL[name]
        return ReferenceModel.of(public_config(family=family), seed)


@contextmanager
def served(*roots: Path, **flags: object) -> Iterator[AcpcClient]:
    with ServerProcess(*roots, **flags) as process, AcpcClient(process.address) as client:
        yield client
        assert process.bugs() == []


def write_world(root: Path) -> ServedWorld:
    """Small LeWM and PLDM checkpoints and a TwoRoom dataset below ``root``."""
    checkpoints, datasets = root / "checkpoints", root / "datasets"
    for name, (family, seed) in SMALL.items():
        write_checkpoint(checkpoints / name, public_config(family=family), seed=seed)
    datasets.mkdir()
    columns = public_columns(EPISODES, side=FRAME_SIDE)
    write_public_dataset(datasets / "tworoom.h5", columns)
    return ServedWorld(checkpoints, datasets, root / "state", columns)


def never_written(path: Path, side: int) -> None:
    """A dataset of a few kilobytes whose frames are zeros of any size."""
    random = np.random.default_rng(0)
    with h5py.File(path, "w", libver="latest") as file:
        file.create_dataset(
            "pixels", (300, side, side, 3), "u1", chunks=(1, side, side, 3)
        )  # no chunk is stored
        file["action"] = random.standard_normal((300, 2)).astype("f4")
        file["pos_agent"] = random.standard_normal((300, 2)).astype("f4")
        file["ep_len"], file["ep_offset"] = np.array([150, 150], "i4"), np.array([0, 150])

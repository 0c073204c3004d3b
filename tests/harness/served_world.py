"""Checkpoints and a dataset on disk for a server to serve, and what a test may know about them."""

from dataclasses import dataclass
from pathlib import Path

from public_checkpoint import public_config, write_checkpoint
from public_dataset import PublicColumns, public_columns, write_public_dataset
from reference_model import ReferenceModel

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

    @staticmethod
    def reference(name: str, *, loops: bool = True) -> ReferenceModel:
        """Float64 forward of a small checkpoint."""
        family, seed = SMALL[name]
        return ReferenceModel.of(public_config(family=family), seed, loops=loops)


def write_world(root: Path) -> ServedWorld:
    """Small LeWM and PLDM checkpoints and a TwoRoom dataset below ``root``."""
    checkpoints, datasets = root / "checkpoints", root / "datasets"
    for name, (family, seed) in SMALL.items():
        write_checkpoint(checkpoints / name, public_config(family=family), seed=seed)
    datasets.mkdir()
    columns = public_columns(EPISODES, side=FRAME_SIDE)
    write_public_dataset(datasets / "tworoom.h5", columns)
    return ServedWorld(checkpoints, datasets, root / "state", columns)

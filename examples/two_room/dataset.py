"""Write two-room episodes as an HDF5 file in the layout stable-worldmodel uses.

    python examples/two_room/dataset.py --out two-room.h5

One dataset per column, one row per environment step, one row per chunk; ``ep_len`` and
``ep_offset`` say which rows belong to which episode.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import h5py
import hdf5plugin
import numpy as np
from acpc.arrays import NDArray
from world import render, simulate

EPISODES, BLOCKS, SEED = 120, 24, 9101


def columns(episodes: int, blocks: int, seed: int) -> dict[str, NDArray[np.generic]]:
    """Run the world and lay its episodes end to end.

    Returns:
        ``pixels`` (N, 32, 32, 3) uint8, ``action`` and ``pos_agent`` (N, 2) float32 over all N
        environment steps; ``ep_len`` int32 and ``ep_offset`` int64 over episodes.
    """
    log = simulate(episodes, blocks, seed)
    length = log.positions.shape[1]
    positions = log.positions.reshape(-1, 2)
    return {
        "pixels": render(positions),
        "action": log.actions.reshape(-1, 2).astype(np.float32),
        "pos_agent": positions.astype(np.float32),
        "ep_len": np.full(episodes, length, dtype=np.int32),
        "ep_offset": np.arange(episodes, dtype=np.int64) * length,
    }


def write_dataset(
    path: Path, *, episodes: int = EPISODES, blocks: int = BLOCKS, seed: int = SEED
) -> None:
    """Write the episodes of ``columns`` to ``path``, replacing what is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w", libver="v114") as file:
        for name, values in columns(episodes, blocks, seed).items():
            per_step = values.ndim > 1
            file.create_dataset(
                name,
                data=values,
                maxshape=(None, *values.shape[1:]),
                chunks=(1, *values.shape[1:]) if per_step else True,
                compression=hdf5plugin.Blosc(cname="zlib") if name == "pixels" else None,
            )


def main() -> None:
    """Write the file the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("two-room.h5"), help="file to write")
    parser.add_argument("--episodes", type=int, default=EPISODES, help="default: %(default)s")
    parser.add_argument(
        "--blocks", type=int, default=BLOCKS, help="blocks per episode, default: %(default)s"
    )
    parser.add_argument("--seed", type=int, default=SEED, help="default: %(default)s")
    args = parser.parse_args()
    write_dataset(args.out, episodes=args.episodes, blocks=args.blocks, seed=args.seed)


if __name__ == "__main__":
    main()

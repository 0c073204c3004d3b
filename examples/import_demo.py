"""Bring what training left behind: import a run of the paper's layout, and score its two epochs.

    python examples/import_demo.py            (or: make import-demo)

`two_room/paper_run` is such a folder: pickled modules `*_epoch_N_object.ckpt`, a state dict and
`config.yaml`. Nothing in it is executed; the classes that it names are installed nowhere here.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
from pathlib import Path

from server_process import PROGRAM, WORLD, acpc, dataset_folder, running_server

SHIFT, ANCHORS = "gaussian_noise:0.05", "100"


def main() -> None:
    """Import, serve, score epoch 2 against epoch 1."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("build/import-demo"))
    out: Path = parser.parse_args().out
    shutil.rmtree(out / "checkpoints", ignore_errors=True)
    command = [str(PROGRAM), "import", str(WORLD / "paper_run"), str(out / "checkpoints" / "run")]
    subprocess.run(command, check=True)  # noqa: S603  our own
    datasets = dataset_folder(out, "two-room", "--episodes", "100")
    with running_server(out / "checkpoints", datasets, out / "state") as address:
        acpc(
            address, "score", "run:weights_epoch_2.pt", "--reference", "run:weights_epoch_1.pt",
            "--dataset", "two-room.h5", "--task", "two-room.yaml",
            "--shift", SHIFT, "--anchors", ANCHORS,
        )  # fmt: skip


if __name__ == "__main__":
    main()

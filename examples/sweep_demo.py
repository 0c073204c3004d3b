"""Sweep the demonstration's checkpoints over eight everyday changes, and write the report.

    python examples/sweep_demo.py            (or: make sweep-demo)

Starts a real server, runs `acpc sweep run` and `acpc report` as a user would, and leaves
build/sweep-demo/report.html, its figures and one row per cell. Run it again after an interruption:
cells that are done are not repeated.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from server_process import HERE, WORLD, acpc, dataset_folder, running_server

# Exit code of a sweep in which a cell fails the screen: expected, the unaugmented ones do.
SCREEN_FAILED = 3


def main() -> None:
    """Command line entry."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE.parent / "build" / "sweep-demo")
    out: Path = parser.parse_args().out.resolve()
    datasets = dataset_folder(out)
    sweep = out / "two-room.yaml"
    shutil.copy(WORLD / "sweep.yaml", sweep)
    with running_server(WORLD / "sweep", datasets, out / "state") as address:
        done = acpc(address, "sweep", "run", str(sweep), "--out", str(out / "cells.csv"))
        if done not in (0, SCREEN_FAILED):
            sys.exit(done)
        figures = out / "figures"
        figures.mkdir(exist_ok=True)
        report = out / "report.html"
        reported = acpc(
            address, "report", str(sweep), "--out", str(report), "--figures", str(figures)
        )
    if reported:
        sys.exit(reported)
    print(f"\nOpen {report} in a browser; figures are in {figures}, rows in {out / 'cells.csv'}")


if __name__ == "__main__":
    main()

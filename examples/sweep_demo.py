"""Sweep the demonstration's checkpoints over noise, blur and resize, and write the report.

    python examples/sweep_demo.py            (or: make sweep-demo)

Starts a real server, runs `acpc sweep run` and `acpc report` as a user would, and leaves
build/sweep-demo/report.html, its figures and one row per cell. Run it again after an interruption:
cells that are done are not repeated.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from server_process import running_server

HERE = Path(__file__).resolve().parent
WORLD = HERE / "two_room"
# Exit code of a sweep in which a cell fails the screen: expected, the unaugmented ones do.
SCREEN_FAILED = 3


def main() -> None:
    """Command line entry."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE.parent / "build" / "sweep-demo")
    out: Path = parser.parse_args().out.resolve()
    datasets = out / "datasets"
    datasets.mkdir(parents=True, exist_ok=True)
    if not (datasets / "two-room.h5").exists():
        # Written once: a dataset that changes under a sweep makes its cells another question.
        _python(WORLD / "dataset.py", "--out", str(datasets / "two-room.h5"))
        shutil.copy(WORLD / "two-room.yaml", datasets)
    sweep = out / "two-room.yaml"
    shutil.copy(WORLD / "sweep.yaml", sweep)
    with running_server(WORLD / "sweep", datasets, out / "state") as address:
        done = _acpc(address, "sweep", "run", str(sweep), "--output", str(out / "cells.csv"))
        if done not in (0, SCREEN_FAILED):
            sys.exit(done)
        figures = out / "figures"
        figures.mkdir(exist_ok=True)
        report = out / "report.html"
        reported = _acpc(
            address, "report", str(sweep), "--output", str(report), "--figures", str(figures)
        )
    if reported:
        sys.exit(reported)
    print(f"\nOpen {report} in a browser; figures are in {figures}, rows in {out / 'cells.csv'}")


def _acpc(address: str, *arguments: str) -> int:
    command = [str(Path(sys.executable).with_name("acpc")), *arguments]
    return subprocess.run(  # noqa: S603  our own command
        command, env=os.environ | {"ACPC_TARGET": address}, check=False
    ).returncode


def _python(script: Path, *arguments: str) -> None:
    subprocess.run([sys.executable, str(script), *arguments], check=True)  # noqa: S603


if __name__ == "__main__":
    main()

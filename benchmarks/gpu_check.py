"""All that a device is tried with, in one command: doctor, agreement tests, absolute figures.

    python benchmarks/gpu_check.py --device cuda [--checkpoint FOLDER] [--quick]

Ends at the first part that fails, with its exit code. Each part leaves JSON in build/gpu-check.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from common import ROOT

LIMIT_SECONDS = 1200.0


def main() -> None:
    """Command line entry."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--device", default="cuda", help="cpu, cuda, cuda:1, xpu or mps")
    arguments.add_argument("--checkpoint", type=Path, help="checkpoint folder for the doctor")
    arguments.add_argument("--out", type=Path, default=ROOT / "build/gpu-check")
    arguments.add_argument(
        "--quick", action="store_true", help="few calls and anchors, to try the command itself"
    )
    options = arguments.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    device, out = f"--device={options.device}", options.out
    small = ["--calls=3", "--batch=2", "--anchors=1", "--rounds=2", "--no-fast"]
    chosen = [f"--checkpoint={options.checkpoint}"] if options.checkpoint else []
    parts = {
        "doctor": ["-m", "acpc_server", "doctor", device, f"--json={out / 'doctor.json'}", *chosen],
        "agreement": [
            "-m", "pytest", "-q", "-m", "device", f"--junitxml={out / 'agreement.xml'}",
            str(ROOT / "tests/server/engine"),
        ],
        "figures": [
            str(ROOT / "benchmarks/device.py"), device, f"--out={out / 'device.json'}",
            *(small if options.quick else []),
        ],
    }  # fmt: skip
    environment = {**os.environ, "ACPC_TEST_DEVICE": options.device}
    started = time.monotonic()
    for name, command in parts.items():
        print(f"== {name}", flush=True)
        left = LIMIT_SECONDS - (time.monotonic() - started)
        try:
            ended = subprocess.run(
                [sys.executable, *command], cwd=ROOT, env=environment, check=False, timeout=left
            )
        except subprocess.TimeoutExpired:
            sys.exit(f"{name} was not done when {LIMIT_SECONDS:.0f} s were over")
        if ended.returncode:
            sys.exit(ended.returncode)
    print(f"all agree; the figures are in {out}, after {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()

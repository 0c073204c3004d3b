"""All that a device is tried with, in one command: doctor, agreement tests, absolute figures.

    python benchmarks/gpu_check.py --device cuda [--quick]

Ends at the first part that fails, with its exit code, or takes longer than its share of 20 minutes.
Each part leaves its file in build/gpu-check. On a CPU, and with --quick, a small network shows that
every part runs; figures have goals at the paper's size alone.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from common import ROOT
from processes import running

# Seconds that each part may take; 20 minutes together.
LIMITS = {"doctor": 240.0, "agreement": 240.0, "figures": 720.0}


# Where a figure stands in device.json, its goal at full length, and whether less is better.
GOALS = {
    "CertifyPool 64 x 5, p50, ms, fp32": ("certify_64x5.fp32.served.p50_ms", 4.0, True),
    "CertifyPool 64 x 5, p50, ms, bf16": ("certify_64x5.bf16.served.p50_ms", 4.0, True),
    "the public way, p50, ms, fp32": ("certify_64x5.fp32.eager.p50_ms", None, True),
    "IR and SR job of 100 anchors, s, fp32": ("job.server_seconds.median", 0.35, True),
    "IR and SR job of 100 anchors, s, bf16": ("job.bf16.server_seconds.median", 0.12, True),
    "encoding, share of the matrix product, bf16": ("encoding.bf16.share_of_peak", 0.45, False),
}


def table(found: dict[str, Any], with_goals: bool) -> str:
    """The figures, beside their goals."""
    lines = [f"{'on ' + found['device']:<50}{'found':>12}{'goal' if with_goals else '':>8}"]
    for name, (path, of_paper, less) in GOALS.items():
        value: Any = found
        for key in path.split("."):
            value = value[key]
        goal = of_paper if with_goals else None
        met = goal is None or (value <= goal if less else value >= goal)
        wanted = "" if goal is None else f"{goal:g}"
        lines.append(f"{name:<50}{value:>12.4g}{wanted:>8}{'' if met else '  missed'}")
    return "\n".join(lines)


def run(command: list[str], environment: dict[str, str], seconds: float) -> int | None:
    """Exit code; None where it took longer, in which case its servers are ended with it."""
    with running(command, cwd=ROOT, env=environment) as process:
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None


def main() -> None:
    """Command line entry."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--device", default="cuda", help="cpu, cuda, cuda:1")
    arguments.add_argument("--out", type=Path, default=ROOT / "build/gpu-check")
    arguments.add_argument(
        "--quick",
        action="store_true",
        help="few calls, anchors, a small network; always so on a CPU",
    )
    options = arguments.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    device, out = f"--device={options.device}", options.out
    small = ["--calls=3", "--batch=2", "--anchors=8", "--rounds=2", "--size=small"]
    quick = options.quick or options.device == "cpu"
    parts = {
        "doctor": ["-m", "acpc_server", "doctor", device],
        "agreement": [
            "-m", "pytest", "-q", "-m", "device", f"--junitxml={out / 'agreement.xml'}",
            str(ROOT / "tests/server/engine/test_device_agreement.py"),
        ],
        "figures": [
            str(ROOT / "benchmarks/device.py"), device, f"--out={out / 'device.json'}",
            *(small if quick else []),
        ],
    }  # fmt: skip
    environment = {**os.environ, "ACPC_TEST_DEVICE": options.device}
    started = time.monotonic()
    for name, command in parts.items():
        print(f"== {name}", flush=True)
        ended = run([sys.executable, *command], environment, LIMITS[name])
        if ended is None:
            sys.exit(
                f"{name} was not done after {LIMITS[name]:.0f} s: is the machine busy? "
                "--quick asks for less"
            )
        if ended:
            sys.exit(ended)
    print(table(json.loads((out / "device.json").read_text()), not quick))
    print(f"all agree; the figures are in {out}, after {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()

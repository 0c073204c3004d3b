"""What the benchmarks share: their paths, their command line, their report, a server's memory."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
WORLD = ROOT / "examples" / "two_room"
CHECKPOINTS = WORLD / "checkpoints"
MIB = 2**20
# The tests' servers and networks, and the demo's world, are modules beside other programs.
HOSTILE = ROOT / "tests/hostile"
PATHS = (ROOT / "tests/harness", ROOT / "tests/reference", HOSTILE, WORLD)
sys.path[:0] = [str(path) for path in PATHS]


def parser(about: str | None, name: str) -> argparse.ArgumentParser:
    """A command line with ``--out``, by default build/benchmarks/NAME.json."""
    made = argparse.ArgumentParser(description=(about or "").splitlines()[0])
    made.add_argument("--out", type=Path, default=ROOT / f"build/benchmarks/{name}.json")
    return made


def publish(report: Mapping[str, Any], out: Path) -> None:
    """Writes the report as JSON, and prints it."""
    text = json.dumps(report, indent=2)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(f"{text}\n")
    print(text)


def memory(pid: int, line: str) -> int:
    """A line of the kernel's account of a process, in bytes: ``VmRSS`` now, ``VmHWM`` its peak."""
    status = Path(f"/proc/{pid}/status").read_text().split(f"{line}:")[1]
    return 1024 * int(status.split()[0])


def forget_peak(pid: int) -> None:
    """Lets the peak of a process begin again."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")

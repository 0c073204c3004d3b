"""What the benchmarks share: paths, command line, report, alternated runs, a server's memory."""

from __future__ import annotations

import argparse
import inspect
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

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
    """Writes the report as JSON, with the machine it is from, and prints it."""
    text = json.dumps({**report, "machine": machine()}, indent=2)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(f"{text}\n")
    print(text)


def run(report: Callable[..., Mapping[str, Any]], given: Sequence[str] | None = None) -> None:
    """Runs a benchmark whose options are the arguments of ``report``, and publishes its answer.

    Ends with 1 where the answer says that a promise was not ``kept``.
    """
    options = parser(report.__globals__["__doc__"], Path(inspect.getfile(report)).stem)
    options.epilog = inspect.getdoc(report)  # says in words what the options mean
    for argument in inspect.signature(report, eval_str=True).parameters.values():
        flag, kind = f"--{argument.name.replace('_', '-')}", argument.annotation
        reading = {"action": argparse.BooleanOptionalAction} if kind is bool else {"type": kind}
        options.add_argument(flag, default=argument.default, help="default: %(default)s", **reading)
    asked = vars(options.parse_args(given))
    out = asked.pop("out")
    found = report(**asked)
    publish(found, out)
    sys.exit(not found.get("kept", True))


def machine() -> dict[str, str | int | float]:
    """Processor, cores, memory in bytes, load of the last minute, and the commit measured."""
    processor = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return {
        "processor": processor[1] if processor else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "load": os.getloadavg()[0],
        "torch": version("torch"),
        "commit": commit(),
    }


def commit() -> str:
    """The short name of what is checked out."""
    git = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    return subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()


class Spent(NamedTuple):
    """Seconds of something: of processors, all threads together, and on the clock."""

    processor: float
    wall: float


ROUNDS = 5
"""Turns of a ratio that has a goal: its spread shows whether the goal is met."""


def spent(work: Callable[[], object], *pids: int) -> Spent:
    """What ``work`` takes of this process and of others, in whose threads it computes.

    Threads of torch that spin while they wait count.
    """

    def now() -> float:
        return time.process_time() + sum(map(processor_time, pids))

    processor, wall = now(), time.perf_counter()
    work()
    return Spent(now() - processor, time.perf_counter() - wall)


def alternated(
    ways: Mapping[str, Callable[[], Spent]], rounds: int = ROUNDS
) -> dict[str, list[Spent]]:
    """What each way takes, in turns (A B A B), so that all of them see the same machine."""
    found: dict[str, list[Spent]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            found[name].append(way())
    return found


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, least and most of a figure's turns; a page shows all, and judges a goal by them."""
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def ratio(over: Sequence[Spent], under: Sequence[Spent]) -> dict[str, float]:
    """The ratio of two ways, turn by turn, by processor time; its median on the clock beside it."""
    turns = [*zip(over, under, strict=True)]
    on_clock = statistics.median(a.wall / b.wall for a, b in turns)
    return {**spread([a.processor / b.processor for a, b in turns]), "wall": on_clock}


def processor_time(pid: int) -> float:
    """Seconds that all threads of a process have used, to the nanosecond: ``clock_getcpuclockid``.

    ``processor_seconds`` counts hundredths.
    """
    return time.clock_gettime((~pid << 3) | 2)


def memory(pid: int, line: str) -> int:
    """A line of the kernel's account of a process, in bytes: ``VmRSS`` now, ``VmHWM`` its peak."""
    status = Path(f"/proc/{pid}/status").read_text().split(f"{line}:")[1]
    return 1024 * int(status.split()[0])


def processor_seconds(pid: int) -> tuple[float, float]:
    """Processor time that a process has used so far, its own and the kernel's for it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    ticks = os.sysconf("SC_CLK_TCK")
    return int(fields[11]) / ticks, int(fields[12]) / ticks

"""Runs the benchmarks one after another, about an hour on two idle cores; `make bench` does it.

    python benchmarks/run_all.py [--only interactive,planning] [--full]

Each writes build/benchmarks/NAME.json, and its output to NAME.log. One that fails, or takes longer
than five times what it should, is named at the end; the others run, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from typing import NamedTuple

from common import ROOT

# isort: split
from processes import running

REPORTS = ROOT / "build/benchmarks"


class Benchmark(NamedTuple):
    """Minutes on two idle cores, and the options of a short run."""

    minutes: float
    options: str = ""


BENCHMARKS = {
    "score_job": Benchmark(5, "--anchors 10"),
    "planning": Benchmark(6),
    "interactive": Benchmark(8, "--seconds 4"),
    "plain": Benchmark(2),
    "loop": Benchmark(1),
    "idle": Benchmark(2, "--settle 75 --seconds 30"),
    "durability": Benchmark(6, "--jobs 100"),
    "fleet": Benchmark(12),
    "evidence_intervals": Benchmark(9, "--experiments 500"),
    "evidence_sequential": Benchmark(4, "--experiments 600"),
    "evidence_populations": Benchmark(30, "--experiments 400"),
}


def run(name: str, options: list[str], seconds: float) -> str:
    """What went wrong with one benchmark; nothing if it ended well."""
    path = REPORTS / f"{name}.log"
    command = [sys.executable, f"{ROOT}/benchmarks/{name}.py", *options]
    with path.open("w") as log, running(command, stdout=log, stderr=log) as process:
        try:
            code = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return f"not over within {seconds / 60:.0f} minutes, see {path}"
    return f"exit code {code}, see {path}" if code else ""


def main() -> None:
    """Command line entry."""
    given = argparse.ArgumentParser(description="Runs the benchmarks one after another.")
    given.add_argument("--only", default="", help="some of them, joined by commas")
    given.add_argument("--full", action="store_true", help="in full size: many hours")
    asked = given.parse_args()
    names = asked.only.split(",") if asked.only else list(BENCHMARKS)
    if unknown := sorted(set(names) - set(BENCHMARKS)):
        given.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    REPORTS.mkdir(parents=True, exist_ok=True)
    bad = {}
    for name in names:
        minutes, options = BENCHMARKS[name]
        print(f"{name} {options} (about {minutes:g} minutes)", flush=True)
        began = time.monotonic()
        short, most = options.split(), 60 * (5 * minutes + 2)
        bad[name] = run(name, [] if asked.full else short, 36000 if asked.full else most)
        print(f"    {bad[name] or 'well'} after {time.monotonic() - began:.0f} s", flush=True)
    sys.exit(any(bad.values()))


if __name__ == "__main__":
    main()

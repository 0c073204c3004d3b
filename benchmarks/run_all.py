"""Runs the benchmarks one after another: about an hour on two cores; `make bench` does it.

    python benchmarks/run_all.py [--only interactive,planning] [--minutes 45] [--full] [--again]

A benchmark that has ended well at this commit, in the same size, is not run again, so that a run
that was interrupted goes on where it was. One that fails, or takes longer than five times what it
should, leaves its log beside the reports; the others run, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from typing import NamedTuple

from acpc_server.__main__ import SPIN_COUNT
from common import ROOT, commit

# isort: split
from postgres_server import find_programs

# Threads of torch that wait spin as long as a server's: by default ten times as long, and processor
# time counts it.
ENVIRONMENT = {"GOMP_SPINCOUNT": SPIN_COUNT}
# As on a processor without AVX-512: for benchmarks whose names end so.
AVX2 = "_avx2"
AVX2_KERNELS = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}
REPORTS = ROOT / "build/benchmarks"
ENDED = ROOT / "build/benchmarks-ended.json"


class Benchmark(NamedTuple):
    """Minutes on two idle cores, the options, and those of ``--full`` where its size differs."""

    minutes: float
    options: str = ""
    full: str | None = None
    postgres: bool = False


BENCHMARKS = {
    "score_job": Benchmark(5, "--anchors 10", ""),
    "job_account": Benchmark(1),
    "threads": Benchmark(2),
    "planning": Benchmark(6),
    "score_job_avx2": Benchmark(4, "--anchors 4"),
    "threads_avx2": Benchmark(3),
    "planning_avx2": Benchmark(3),
    "interactive": Benchmark(7, "--seconds 4", ""),
    "control_loop": Benchmark(3),
    "devices": Benchmark(3, "--seconds 4", ""),
    "neighbour": Benchmark(0.5),
    "idle": Benchmark(2, "--settle 75 --seconds 30", "", postgres=True),
    "draws": Benchmark(0.4, "--quality 50000000", ""),
    "scaling": Benchmark(7),
    "anchors": Benchmark(1.5, "--anchors 2000", ""),
    "access": Benchmark(2.5, "--rounds 300", ""),
    "fairness": Benchmark(1, "--rounds 3", ""),
    "two_tenants": Benchmark(7, "--seconds 10", ""),
    "job_queue": Benchmark(2, "--queued 1000", ""),
    "rolling": Benchmark(2.5, "--rounds 1 --callers 2", "", postgres=True),
    "durability": Benchmark(6, "--jobs 100", "", postgres=True),
    "fleet": Benchmark(15, "", "--full", postgres=True),
    "device_floors": Benchmark(0.2),
    "door": Benchmark(5),
    "soak": Benchmark(11, "--minutes 10", ""),
    "planner_policy": Benchmark(8, "--episodes 4", ""),
    "evidence_intervals": Benchmark(6, "--experiments 500", ""),
    "evidence_limit": Benchmark(6, "--experiments 100", ""),
    "evidence_paired": Benchmark(3, "--experiments 500", ""),
    "evidence_populations": Benchmark(6, "--experiments 500", ""),
    "evidence_sequential": Benchmark(4, "--experiments 600", ""),
    "evidence_certificates": Benchmark(1),
    "evidence_monitor": Benchmark(1.5),
    "evidence_demo": Benchmark(4, "--sets 40", ""),
}


def run(name: str, options: list[str], seconds: float) -> str:
    """What went wrong with one benchmark; nothing if it ended well."""
    script, _, study = name.partition("_") if name.startswith("evidence") else (name, "", "")
    environment = {**os.environ, **ENVIRONMENT}
    if name.endswith(AVX2):
        script, environment = name.removesuffix(AVX2), environment | AVX2_KERNELS
        options = [*options, "--out", f"{REPORTS / name}.json"]
    command = [sys.executable, f"{ROOT}/benchmarks/{script}.py", *([study] if study else [])]
    path = REPORTS / f"{name}.log"
    with path.open("w") as log:
        process = subprocess.Popen(
            [*command, *options], stdout=log, stderr=subprocess.STDOUT, env=environment
        )
        try:
            code = process.wait(timeout=seconds)
            return f"exit code {code}, see {path}" if code else ""
        except subprocess.TimeoutExpired:
            return f"not over within {seconds / 60:.0f} minutes, see {path}"
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)  # which ends its servers, too
                try:
                    process.wait(timeout=60)
                except subprocess.TimeoutExpired:
                    process.kill()


def wanted(only: str) -> dict[str, Benchmark]:
    """The benchmarks that were asked for, in the order of the table."""
    names = only.split(",") if only else list(BENCHMARKS)
    if unknown := sorted(set(names) - set(BENCHMARKS)):
        sys.exit(f"no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    return {name: one for name, one in BENCHMARKS.items() if name in names}


def main() -> None:
    """Command line entry."""
    given = argparse.ArgumentParser(description="Runs the benchmarks one after another.")
    given.add_argument("--only", default="", help="some of them, joined by commas")
    given.add_argument("--minutes", type=float, help="start none that would end later than this")
    given.add_argument("--full", action="store_true", help="in full size: many hours")
    given.add_argument("--again", action="store_true", help="also what this commit has measured")
    asked = given.parse_args()
    benchmarks = wanted(asked.only)
    REPORTS.mkdir(parents=True, exist_ok=True)
    ended = json.loads(ENDED.read_text()) if ENDED.exists() else {}
    missing = find_programs() is None
    if missing and (need := [name for name, one in benchmarks.items() if one.postgres]):
        print(f"no PostgreSQL (apt-get install postgresql), so not measured: {', '.join(need)}")
    bad, begun = {}, time.monotonic()
    minutes = sum(one.minutes for one in benchmarks.values())
    print(f"{len(benchmarks)} benchmarks, about {minutes:.0f} minutes on two idle cores")
    for number, (name, one) in enumerate(benchmarks.items(), 1):
        options = one.full if asked.full and one.full is not None else one.options
        now = (time.monotonic() - begun) / 60
        line = f"[{number}/{len(benchmarks)}, minute {now:.0f}] {name} {options}".rstrip()
        if ended.get(name) == [commit(), options] and not asked.again:
            print(f"{line}: measured at this commit")
            continue
        if missing and one.postgres:
            bad[name] = "needs PostgreSQL"
        elif asked.minutes is not None and now + one.minutes > asked.minutes:
            bad[name] = f"no time left for its {one.minutes:g} minutes"
        else:
            print(f"{line} (about {one.minutes:g} minutes)", flush=True)
            started = time.monotonic()
            most = 600 if asked.full else 5 * one.minutes + 2
            most = most if asked.minutes is None else min(most, asked.minutes - now)
            bad[name] = run(name, options.split(), 60 * most)
            print(f"    {bad[name] or 'well'} after {time.monotonic() - started:.0f} s", flush=True)
        if not bad[name]:
            del bad[name]
            ended[name] = [commit(), options]
            ENDED.write_text(json.dumps(ended))
    for name, reason in bad.items():
        print(f"{name}: {reason}")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()

"""Latency of one caller alone, and beside another whose calls never cease.

    python benchmarks/fairness.py [--rounds 5] [--seconds 4] [--callers 32]

Idle and loaded parts alternate, so that both see the same machine.
"""

from __future__ import annotations

import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from common import CHECKPOINTS, parser, publish
from load import closed_loop, quantiles
from server_process import ServerProcess

MODEL = "two-room-base"


def main() -> None:
    """Command line entry."""
    arguments = parser(__doc__, "fairness")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--seconds", type=float, default=4.0, help="length of each part")
    arguments.add_argument("--callers", type=int, default=32, help="concurrent calls of the other")
    arguments.add_argument("--draws", type=int, default=4, help="views of each pair of the other")
    options = arguments.parse_args()
    idle: list[float] = []
    beside: list[float] = []
    others = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        ServerProcess(CHECKPOINTS, Path(folder), Path(folder) / "state") as server,
        ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool,
    ):
        one = (closed_loop, server.address, MODEL, 1, options.seconds, 4)
        pool.submit(*one).result()  # warm
        for _ in range(options.rounds):
            idle += pool.submit(*one).result()[0]
            many = pool.submit(
                closed_loop,
                server.address,
                MODEL,
                options.callers,
                options.seconds + 1,
                options.draws,
            )
            beside += pool.submit(*one).result()[0]
            others += sum(map(len, many.result()))
    report = {"idle": quantiles(idle), "beside": quantiles(beside), "calls_of_the_other": others}
    report["p99_ratio"] = report["beside"]["p99_ms"] / report["idle"]["p99_ms"]
    report["p50_ratio"] = report["beside"]["p50_ms"] / report["idle"]["p50_ms"]
    publish(report, options.out)


if __name__ == "__main__":
    main()

"""Latency of one caller alone, and beside another whose calls never cease.

    python benchmarks/fairness.py [--rounds 5] [--seconds 4] [--callers 32]
    python benchmarks/fairness.py --dear [--callers 4] [--out build/benchmarks/fairness_dear.json]

Idle and loaded parts alternate, so that both see the same machine. With ``--dear`` the model has
the paper's size, and each call of the other asks for 64 views under a wide defocus blur.
"""

from __future__ import annotations

import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from common import CHECKPOINTS, parser, publish
from load import DEAR, PAIR, PAPER_PAIR, closed_loop, quantiles
from neighbour import DEFAULTS
from public_checkpoint import public_config, random_state_dict, write_checkpoint
from server_process import ServerProcess

DEAR_RATIO = 3.0


def measure(server: ServerProcess, model: str, options: Any) -> dict[str, Any]:  # noqa: ANN401
    """The one's latencies alone and beside the other's calls; a failed call of either ends it."""
    own, others = (PAPER_PAIR, DEAR) if options.dear else (PAIR, PAIR)
    idle, beside, count = list[float](), list[float](), 0
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        one = (closed_loop, server.address, model, 1, options.seconds, 1 if options.dear else 4)
        pool.submit(*one, own).result()  # warm
        for _ in range(options.rounds):
            idle += pool.submit(*one, own).result()[0]
            given = server.address, model, options.callers, options.seconds + 1, options.draws
            many = pool.submit(closed_loop, *given, others)
            beside += pool.submit(*one, own).result()[0]
            count += sum(map(len, many.result()))
    report = {"idle": quantiles(idle), "beside": quantiles(beside), "calls_of_the_other": count}
    report["p99_ratio"] = report["beside"]["p99_ms"] / report["idle"]["p99_ms"]
    report["p50_ratio"] = report["beside"]["p50_ms"] / report["idle"]["p50_ms"]
    return {**report, "dear": options.dear}


def main() -> None:
    """Command line entry."""
    arguments = parser(__doc__, "fairness")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--seconds", type=float, default=4.0, help="length of each part")
    arguments.add_argument("--callers", type=int, default=32, help="concurrent calls of the other")
    arguments.add_argument("--draws", type=int, default=4, help="views of each pair of the other")
    arguments.add_argument("--dear", action="store_true", help="the other's views are dear to draw")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root, checkpoints, model = Path(folder), CHECKPOINTS, "two-room-base"
        flags: dict[str, Any] = {}
        if options.dear:
            checkpoints, model, config = root / "checkpoints", "paper", public_config("paper")
            write_checkpoint(checkpoints / model, config, random_state_dict(config))
            flags = {"environment": DEFAULTS, "torch_threads": 0, "preload": model}
        with ServerProcess(checkpoints, root, root / "state", **flags) as server:
            report = measure(server, model, options)
    publish(report, options.out)
    sys.exit(options.dear and report["p99_ratio"] > DEAR_RATIO)


if __name__ == "__main__":
    main()

"""How long the server's event loop keeps others waiting while 32 callers compare pairs.

    python benchmarks/loop.py [--seconds 6] [--callers 32] [--method CertifyPool]

A coroutine on the loop sleeps a millisecond, again and again. A pause is what it sleeps longer: on
the clock, which counts other programs of this machine too, and in processor time of the loop's own
thread, which is what callbacks there take.
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
import time
from typing import Any

import numpy as np
from acpc_server.app import Server
from acpc_server.settings import Settings
from common import CHECKPOINTS, run
from load import PAIR, closed_loop, loader

MODEL, BEAT, PATIENCE = "two-room-base", 0.001, 120.0


async def beat(seconds: float) -> list[tuple[float, float]]:
    """Pauses of this loop: seconds on the clock, and of its thread."""
    found: list[tuple[float, float]] = []
    end = time.perf_counter() + seconds
    while (began := time.perf_counter()) < end:
        own = time.thread_time()
        await asyncio.sleep(BEAT)
        found.append((time.perf_counter() - began - BEAT, time.thread_time() - own))
    return found


def report(seconds: float = 6.0, callers: int = 32, method: str = PAIR) -> dict[str, Any]:
    """Load for so many seconds, after as many of a warm-up."""
    with tempfile.TemporaryDirectory() as folder:
        roots = {"checkpoint_root": CHECKPOINTS, "dataset_root": folder, "state_dir": folder}
        server = Server(
            Settings(**roots, port=0, metrics_port=-1, device="cpu", lame_duck_seconds=0)
        )
        server.start()
        try:
            load = (f"127.0.0.1:{server.port}", MODEL, callers, seconds, 1, method)
            loader().submit(closed_loop, *load).result(PATIENCE)
            gc.collect()  # as `serve` does
            gc.freeze()
            loop = server._door._loop
            pauses = asyncio.run_coroutine_threadsafe(beat(seconds), loop)
            answers = loader().submit(closed_loop, *load).result(PATIENCE)
            on_clock, own = 1e3 * np.array(pauses.result(PATIENCE)).T
        finally:
            server.stop()
    names = ("p50", "p99", "longest")
    return {
        "answers_per_second": sum(map(len, answers)) / seconds,
        "pause_ms": dict(zip(names, np.quantile(on_clock, (0.5, 0.99, 1)).tolist(), strict=True)),
        "of_its_thread_ms": dict(
            zip(names, np.quantile(own, (0.5, 0.99, 1)).tolist(), strict=True)
        ),
    }


if __name__ == "__main__":
    run(report)

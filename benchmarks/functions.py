"""Counts the functions of ours that a ComparePair passes in a warm server, by package.

python benchmarks/functions.py
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from common import CHECKPOINTS, run

# isort: split
import grpc
import numpy as np
from acpc_server.app import Server
from acpc_server.settings import Settings
from load import pair_request

SERVER, CONTRACT = "/acpc_server/", "/proto/acpc/"
OTHER_THREADS = ("acpc-lease", "watchdog", "MainThread")


def passed() -> set[CodeType]:
    """The functions that the twentieth request passes, in whatever thread."""
    seen: set[CodeType] = set()
    counting = threading.Event()

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event != "call" or not counting.is_set() or frame.f_code.co_name.startswith("<"):
            return
        if threading.current_thread().name not in OTHER_THREADS:
            seen.add(frame.f_code)

    with tempfile.TemporaryDirectory() as folder:
        threading.setprofile(profile)  # of threads that are started from here on
        given = {"checkpoint_root": CHECKPOINTS, "dataset_root": folder, "state_dir": folder}
        server = Server(Settings(**given, port=0, metrics_port=-1, device="cpu"))
        server.start()
        with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            ask = channel.unary_unary("/acpc.v1.DiagnosticService/ComparePair")
            for seed in range(20):
                request = pair_request("two-room-base", np.random.default_rng(seed), 1)
                if seed == 19:
                    time.sleep(0.5)  # until those before have ended
                    counting.set()
                ask(request.SerializeToString(), timeout=60)
            time.sleep(0.5)
            counting.clear()
        server.stop()
    return {code for code in seen if SERVER in code.co_filename or CONTRACT in code.co_filename}


def report() -> dict[str, Any]:
    """What was passed, by package, and the names."""
    found: dict[str, list[str]] = {}
    for code in passed():
        path = Path(code.co_filename).parts
        package = path[path.index("acpc_server") + 1] if "acpc_server" in path else "contract"
        found.setdefault(package, []).append(f"{path[-1]}:{code.co_qualname}")
    counts = Counter({package: len(names) for package, names in found.items()})
    return {"functions": dict(counts.most_common()), "names": {k: sorted(found[k]) for k in found}}


if __name__ == "__main__":
    run(report)

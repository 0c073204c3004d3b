"""A caller that takes what it can get: connections, waits, streams and jobs.

    python tests/hostile/adversary.py ADDRESS [--key KEY] [--connections 200] [--waits 100] ...

Prints what it holds as a line of JSON, and goes on until its standard input ends.
"""

import argparse
import itertools
import json
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    tests = Path(__file__).parent.parent
    sys.path[:0] = [str(tests / "harness"), str(tests / "reference")]

import grpc
import wire
from acpc.v1 import diagnostic_service_pb2, diagnostic_service_pb2_grpc, scoring_service_pb2_grpc
from attacks import PAIR, Target
from google.longrunning import operations_pb2, operations_pb2_grpc

SUBMITTERS = 8
PAUSE_SECONDS = 0.05
HALF_OPEN_SECONDS = 5.0
# Streams are open by then; later its half-open calls would be in their way, too.
SETTLE_SECONDS = 2.0


class Adversary:
    """Holds all of it with one identity; what is rejected is tried again, as an adversary would."""

    def __init__(self, address: str, key: str) -> None:
        self._metadata = (("authorization", f"Bearer {key}"),) if key else ()
        self._address = address
        headers = tuple((name.encode(), value.encode()) for name, value in self._metadata)
        self._target = Target(address, headers=headers)
        self._channel = grpc.insecure_channel(address)
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._held = ExitStack()
        self.seen: Counter[str] = Counter()

    def submit(self, count: int) -> str:
        """Submit jobs, several at a time; the name of one, empty when none was taken."""
        stub = scoring_service_pb2_grpc.ScoringServiceStub(self._channel)

        def one(index: int) -> str:
            protocol = {"draws": 500, "horizon": wire.HORIZON, "seed": index}
            request = wire.score(protocol=protocol)
            try:
                name = stub.ScoreCheckpoint(request, timeout=60, metadata=self._metadata).name
            except grpc.RpcError as error:
                self.seen[f"job {error.code().name}"] += 1
                return ""
            self.seen["job OK"] += 1
            return str(name)

        with ThreadPoolExecutor(SUBMITTERS) as pool:
            names = [name for name in pool.map(one, range(count)) if name]
        return names[-1] if names else ""

    def connect(self, count: int) -> None:
        """Open connections, each with calls that have no body, a new one as the last is ended."""
        opened = [self._held.enter_context(self._target.connect()) for _ in range(count)]

        def call_again() -> None:
            for connection in opened:
                connection.call(PAIR, *self._target.headers)
            self._over.wait(HALF_OPEN_SECONDS)

        self._repeat(1 if count else 0, "half-open round", call_again)

    def wait(self, count: int, name: str) -> None:
        """Wait for one job many times at once."""
        stub = operations_pb2_grpc.OperationsStub(self._channel)
        request = operations_pb2.WaitOperationRequest(name=name, timeout={"seconds": 60})
        self._repeat(
            count, "wait", lambda: stub.WaitOperation(request, timeout=70, metadata=self._metadata)
        )

    def stream(self, count: int) -> None:
        """Send pair after pair on streams, each once the last was answered."""
        stub = diagnostic_service_pb2_grpc.DiagnosticServiceStub(self._channel)
        seeds = itertools.count()

        def one() -> None:
            turn = threading.Semaphore(1)

            def pairs() -> Any:  # noqa: ANN401
                while not self._over.is_set():
                    if turn.acquire(timeout=1):
                        views = wire.several(seed=next(seeds), draws=4)
                        pair = wire.pair(perturbations=views)
                        yield diagnostic_service_pb2.ComparePairsRequest(pair_id="x", pair=pair)

            for answer in stub.ComparePairs(pairs(), metadata=self._metadata):
                self.seen[f"pair {answer.WhichOneof('outcome')}"] += 1
                turn.release()

        self._repeat(count, "stream", one)

    def close(self) -> None:
        """Let go of everything."""
        self._over.set()
        self._channel.close()
        self._held.close()
        for thread in self._threads:
            thread.join()

    def _repeat(self, count: int, what: str, call: Any) -> None:  # noqa: ANN401
        def run() -> None:
            while not self._over.is_set():
                try:
                    call()
                    self.seen[f"{what} OK"] += 1
                except (grpc.RpcError, ValueError, OSError) as error:  # closed, by us or the server
                    code = error.code().name if isinstance(error, grpc.RpcError) else "CLOSED"
                    self.seen[f"{what} {code}"] += 1
                    self._over.wait(PAUSE_SECONDS)

        for _ in range(count):
            self._threads.append(threading.Thread(target=run, daemon=True))
            self._threads[-1].start()


def main() -> None:
    command = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    command.add_argument("address")
    command.add_argument("--key", default="")
    for name, count in (("connections", 200), ("waits", 100), ("streams", 50), ("jobs", 2000)):
        command.add_argument(f"--{name}", type=int, default=count)
    given = command.parse_args()
    adversary = Adversary(given.address, given.key)
    started = time.monotonic()
    name = adversary.submit(given.jobs)
    adversary.stream(given.streams)
    adversary.wait(given.waits, name)
    time.sleep(SETTLE_SECONDS if given.streams else 0.0)
    adversary.connect(given.connections)
    seconds = round(time.monotonic() - started, 1)
    print(json.dumps({"seconds": seconds, **adversary.seen}), flush=True)
    sys.stdin.read()
    print(json.dumps(dict(adversary.seen)), flush=True)
    adversary.close()


if __name__ == "__main__":
    main()

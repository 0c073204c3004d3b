"""Mixed load through one client on several servers, each of which is restarted in turn."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from acpc_client import AcpcClient, DatasetAnchors, GaussianNoise, ScoreProtocol
from acpc_client.errors import AcpcError
from job_hosts import Hosts
from waiting import wait_until

SIDE, WIDTH, HISTORY, HORIZON, CANDIDATES = 28, 10, 3, 8, 16
# Scores of equal seed have equal bytes, whichever server measures them.
SEEDS = 3


@dataclass
class Load:
    """What the callers of a load have seen.

    Attributes:
        seconds: How long each call took that was answered, by kind; of a job, until its result.
        failures: What failed: kind, and the error as text.
        scores: Every score by its seed; equal ones once.
    """

    seconds: dict[str, list[float]] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)
    scores: dict[int, set[bytes]] = field(default_factory=dict)

    def count(self, kind: str) -> int:
        """Calls of a kind that were answered."""
        return len(self.seconds.get(kind, ()))

    def answered(self) -> int:
        """Calls of all kinds that were answered."""
        return sum(map(len, self.seconds.values()))


def views(rng: np.random.Generator, frames: int) -> np.ndarray:
    return rng.integers(0, 256, (frames, SIDE, SIDE, 3), np.uint8)


def blocks(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal((*shape, WIDTH)).astype(np.float32)


def compare(client: AcpcClient, load: Load, rng: np.random.Generator) -> None:
    actions = blocks(rng, HISTORY + HORIZON - 1)
    client.compare_pair("model", views(rng, HISTORY), actions, perturbations=GaussianNoise(0.08))


def certify(client: AcpcClient, load: Load, rng: np.random.Generator) -> None:
    client.certify_pool(
        "model",
        views(rng, HISTORY),
        blocks(rng, CANDIDATES, HORIZON),
        views(rng, 1)[0],
        past_blocks=blocks(rng, HISTORY - 1),
        perturbations=GaussianNoise(0.02),
    )


def score(client: AcpcClient, load: Load, rng: np.random.Generator) -> None:
    seed = int(rng.integers(SEEDS))
    job = client.score_checkpoint(
        "model",
        DatasetAnchors("rooms.h5", "tworoom", count=20),
        GaussianNoise(0.08),
        protocol=ScoreProtocol(draws=2, seed=seed),
    )
    found = job.result()
    side = found.checkpoint
    load.scores.setdefault(seed, set()).add(np.float64([side.ir_raw, side.sr]).tobytes())


KINDS: tuple[Callable[[AcpcClient, Load, np.random.Generator], None], ...] = (
    compare, certify, score,
)  # fmt: skip


def target_of(hosts: Hosts) -> str:
    """All servers as one target."""
    return ",".join(server.address for server in hosts.servers)


def roll(hosts: Hosts, rounds: int, callers: int, calls_between: int) -> tuple[Load, list[float]]:
    """Restarts every server in turn under load.

    Args:
        hosts: The servers; each is stopped with SIGTERM and started where it was.
        rounds: Times each is restarted.
        callers: Threads of each kind of call.
        calls_between: Calls that are answered from one restart to the next.

    Returns:
        What the callers saw, and the seconds that each server was away.
    """
    load, over, lock = Load(), threading.Event(), threading.Lock()
    away: list[float] = []

    def call(kind: Callable[..., None], number: int) -> None:
        rng = np.random.default_rng(number)
        while not over.is_set():
            begun = time.monotonic()
            try:
                kind(client, load, rng)
            except AcpcError as error:
                with lock:
                    load.failures[f"{kind.__name__}: {error.code}: {error.message}"] += 1
            else:
                with lock:
                    taken = load.seconds.setdefault(kind.__name__, [])
                    taken.append(time.monotonic() - begun)

    with AcpcClient(target_of(hosts)) as client:
        kinds = [kind for kind in KINDS for _ in range(callers)]
        threads = [
            threading.Thread(target=call, args=(kind, number)) for number, kind in enumerate(kinds)
        ]
        for thread in threads:
            thread.start()
        try:
            for _ in range(rounds):
                for server in hosts.servers:
                    _let_pass(load, calls_between)
                    begun = time.monotonic()
                    assert server.terminate() == 0
                    server.restart()
                    away.append(time.monotonic() - begun)
            _let_pass(load, calls_between)
        finally:
            over.set()
            for thread in threads:
                thread.join()
    return load, away


def _let_pass(load: Load, calls: int) -> None:
    """Returns when so many more calls were answered, and one more of each kind."""
    kinds = [kind.__name__ for kind in KINDS]
    before, of_each = load.answered(), [load.count(kind) for kind in kinds]
    wait_until(
        lambda: (
            load.answered() >= before + calls
            and all(load.count(k) > n for k, n in zip(kinds, of_each, strict=True))
        ),
        f"the load stands still: {load.failures}",
    )

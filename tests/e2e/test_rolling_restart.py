"""Three servers, each restarted in turn under load: no call fails, no job is lost."""

import threading
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest
from acpc_client import AcpcClient, DatasetAnchors, GaussianNoise, ScoreProtocol
from acpc_client.errors import AcpcError
from job_hosts import Hosts
from job_world import write_job_world
from postgres_server import PostgresServer
from waiting import wait_until

KINDS = ("pair", "score")
SEEDS = 3  # scores of equal seed have equal bytes, whichever server measures them


class Load:
    """Callers of each kind of call, three of each, and what they have seen."""

    def __init__(self, client: AcpcClient) -> None:
        self.client, self.over = client, threading.Event()
        self.answered: Counter[str] = Counter()
        self.failures: list[str] = []
        self.scores: defaultdict[int, set[bytes]] = defaultdict(set)
        self.threads = [
            threading.Thread(target=self.call, args=(kind, 10 * seed + place))
            for place, kind in enumerate(KINDS)
            for seed in range(3)
        ]

    def call(self, kind: str, seed: int) -> None:
        rng = np.random.default_rng(seed)
        while not self.over.is_set():
            try:
                getattr(self, kind)(rng)
                self.answered[kind] += 1
            except AcpcError as error:
                self.failures.append(f"{kind}: {error.code}: {error.message}")

    def pair(self, rng: np.random.Generator) -> None:
        history = rng.integers(0, 256, (3, 28, 28, 3), np.uint8)
        blocks = rng.standard_normal((10, 10)).astype(np.float32)
        self.client.compare_pair("model", history, blocks, perturbations=GaussianNoise(0.08))

    def score(self, rng: np.random.Generator) -> None:
        seed = int(rng.integers(SEEDS))
        anchors = DatasetAnchors("rooms.h5", "tworoom", count=20)
        protocol = ScoreProtocol(draws=2, seed=seed)
        job = self.client.score_checkpoint("model", anchors, GaussianNoise(0.08), protocol=protocol)
        side = job.result().checkpoint
        self.scores[seed].add(np.float64([side.ir_raw, side.sr]).tobytes())

    def let_pass(self) -> None:
        """Return when 30 more calls were answered, and one more of each kind."""
        before = Counter(self.answered)

        def passed() -> bool:
            more = self.answered - before
            return bool(self.failures) or (more.total() >= 30 and all(map(more.get, KINDS)))

        wait_until(passed, "the load stands still")


@pytest.mark.slow
def test_servers_restarted_in_turn_fail_no_call(tmp_path: Path, postgres: PostgresServer) -> None:
    url, anchors = postgres.new_database(), tmp_path / "anchors"
    with Hosts(write_job_world(tmp_path), url, job_lease_seconds=2.0, anchor_dir=anchors) as hosts:
        with AcpcClient(",".join(server.address for server in hosts.servers)) as client:
            load = Load(client)
            for thread in load.threads:
                thread.start()
            try:
                for server in hosts.servers:
                    load.let_pass()
                    assert server.terminate() == 0
                    server.restart()
                load.let_pass()
            finally:
                load.over.set()
                for thread in load.threads:
                    thread.join()
        assert [bug for server in hosts.servers for bug in server.bugs()] == []
    assert not load.failures
    assert all(len(found) == 1 for found in load.scores.values()), "each seed has one score"

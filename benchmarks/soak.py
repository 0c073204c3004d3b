"""Mixed load of two callers on a server that is restarted and killed: failures, memory, latencies.

    python benchmarks/soak.py [--minutes 60] [--pause 0.05] [--out build/benchmarks/soak.json]

Valid calls of every kind, hostile requests beside them. In the first half of the time the server
is stopped (SIGTERM) and killed (SIGKILL) in turn and started again at once; in the second half it
runs undisturbed, and its memory is fitted with a line once the latent cache is full. Ends with 1
when a valid call failed, a job was lost, the server had a bug, or its memory or threads grew.
"""

from __future__ import annotations

import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from common import run

# isort: split
import anchor_wire
import grpc
import planning_wire
import wire
from acpc_client import (
    AcpcClient,
    AnchorArrays,
    CemBudget,
    DatasetAnchors,
    DriftStudy,
    GaussianNoise,
    Pair,
    ScoreProtocol,
)
from acpc_client.errors import AcpcError
from acpc_server.access import Role, create_key
from cases import Cases, Names
from fuzzer import FAULTS, send
from load import quantiles
from served_world import write_world
from server_process import ServerProcess, free_port
from watching import holdings

RESTART_SECONDS = 120.0
SAMPLE_SECONDS = 2.0
CACHE_MIB = 32
# Growth of the last, undisturbed life that still counts as flat, if that lasted long enough.
FLAT_PER_HOUR = {"rss_mib": 64.0, "threads": 8.0}
LONG_ENOUGH_SECONDS = 600.0
SHIFT = GaussianNoise(0.08)
ANCHORS = DatasetAnchors("tworoom.h5", "tworoom", count=4)
HOSTILE_SEED = 77
Metadata = tuple[tuple[str, str], ...]


class Tally:
    """What the callers have seen, by kind of call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.seconds: dict[str, list[float]] = {}
        self.again: Counter[str] = Counter()
        self.failed: list[str] = []
        self.hostile: Counter[str] = Counter()

    def answered(self, kind: str, seconds: float) -> None:
        """A valid call was answered, restarts waited for included."""
        with self._lock:
            self.seconds.setdefault(kind, []).append(seconds)

    def wrong(self, kind: str, text: str) -> None:
        """A valid call failed, or a hostile one was answered with a fault."""
        with self._lock:
            self.failed.append(f"{kind}: {text}")


class Work:
    """One caller's valid calls, each with data that nobody has sent before."""

    def __init__(self, client: AcpcClient, seed: int) -> None:
        self._client = client
        self._seed = seed * 10**6

    def kinds(self) -> dict[str, Callable[[], object]]:
        """Every kind of call by name."""
        return {
            "compare_pair": self._pair,
            "compare_pairs": self._pairs,
            "certify_pool": self._pool,
            "plan": self._plan,
            "plan_paired": self._paired,
            "score": self._score,
            "study": self._study,
            "anchors": self._anchors,
            "checkpoints": self._checkpoints,
        }

    def _history(self) -> Any:  # noqa: ANN401
        self._seed += 1
        return wire.frames(wire.HISTORY, seed=self._seed)

    def _pair(self) -> object:
        return self._client.compare_pair(
            "lewm", self._history(), wire.blocks(), perturbations=SHIFT, draws=4
        )

    def _pairs(self) -> object:
        pairs = [Pair(self._history(), wire.blocks(), perturbations=SHIFT) for _ in range(8)]
        outcomes = list(self._client.compare_pairs("lewm", pairs))
        for outcome in outcomes:
            if outcome.error is not None:
                raise outcome.error
        return outcomes

    def _pool(self) -> object:
        goal, past = wire.frames(1, seed=8)[0], wire.blocks(wire.HISTORY - 1)
        return self._client.certify_pool(
            "pldm",
            self._history(),
            planning_wire.pool(),
            goal,
            past_blocks=past,
            perturbations=SHIFT,
        )

    def _plan(self) -> object:
        goal, past = wire.frames(1, seed=8)[0], wire.blocks(wire.HISTORY - 1)
        with self._client.plan(
            "lewm", self._history(), goal, past_blocks=past, perturbations=SHIFT
        ) as session:
            return [session.certify(planning_wire.pool(seed=n)) for n in range(5)]

    def _paired(self) -> object:
        goal, past = wire.frames(1, seed=8)[0], wire.blocks(wire.HISTORY - 1)
        budget = CemBudget(candidates=12, elites=3, iterations=2, horizon=3)
        return self._client.plan_paired(
            "lewm", self._history(), goal, budget, past_blocks=past, perturbations=SHIFT
        )

    def _score(self) -> object:
        self._seed += 1
        protocol = ScoreProtocol(draws=3, horizon=wire.HORIZON, seed=self._seed)
        job = self._client.score_checkpoint("lewm", ANCHORS, SHIFT, protocol=protocol)
        score = job.result()
        self._client.preview_anchors(job, [0, 1])
        self._client.operations.delete(job.name)
        return score

    def _study(self) -> object:
        self._seed += 1
        study = DriftStudy(shifts=(SHIFT,), draws=1, horizon=2, seed=self._seed, groups=2)
        job = self._client.run_study("lewm", ANCHORS, study)
        result = job.result()
        next(iter(self._client.operations.list()))
        # As the scores' jobs: records that pile up would be the growth that is found.
        self._client.operations.delete(job.name)
        return result

    def _anchors(self) -> object:
        self._seed += 1
        arrays = anchor_wire.anchor_arrays(seed=self._seed)
        stored = self._client.anchors.upload(AnchorArrays(history=anchor_wire.HISTORY, **arrays))
        self._client.anchors.get(stored)
        return self._client.anchors.delete(stored)

    def _checkpoints(self) -> object:
        self._client.checkpoints.load("lewm-base")
        self._client.checkpoints.unload("lewm-base")
        return list(self._client.checkpoints.list())


@dataclass
class Pace:
    """Until when callers call, and the seconds they rest after each call."""

    pause: float
    over: threading.Event = field(default_factory=threading.Event)

    def rest(self) -> bool:
        """Whether the time is up, after a rest."""
        return self.over.wait(self.pause)


def repeat(
    client: AcpcClient, kind: str, call: Callable[[], object], tally: Tally, pace: Pace
) -> None:
    """Make one kind of call until time is up; a call outlasts restarts as the client's jobs do."""
    while not pace.rest():
        started, absence = time.monotonic(), client.absence()
        while True:
            try:
                call()
                tally.answered(kind, time.monotonic() - started)
                break
            except AcpcError as error:
                try:
                    pause = absence.failed(error)
                except AcpcError:
                    tally.wrong(kind, f"{type(error).__name__} {error}")
                    break
                tally.again[kind] += 1
                time.sleep(pause)
            except Exception:  # noqa: BLE001 - a bug of the client is a finding of the soak
                tally.wrong(kind, traceback.format_exc()[-600:])
                break


def hostile(address: str, key: Metadata, tally: Tally, pace: Pace) -> None:
    """Cases of the fuzzer, one after another; away is no fault here."""
    cases = Cases(HOSTILE_SEED, Names("operations/of-nobody", "0" * 64))
    faults = set(FAULTS) - {"UNAVAILABLE"}
    index = 0
    with grpc.insecure_channel(address) as channel:
        while not pace.rest():
            case = cases.case(index)
            ended = send(channel, replace(case, metadata=(*case.metadata, *key)))
            tally.hostile[ended.code] += 1
            if ended.code in faults:
                tally.wrong("hostile", f"--only {index} {case.path} {ended.code} {ended.details}")
            index += 1


def lives(server: ServerProcess, seconds: float, bugs: list[str]) -> Iterator[str]:
    """Restarts the server through the first half of the time; says each time what was done."""
    end = time.monotonic() + seconds / 2
    term = True
    pause = min(RESTART_SECONDS, seconds / 8)
    while time.monotonic() + pause < end:
        time.sleep(pause)
        began = time.monotonic()
        how = f"SIGTERM, exit {server.terminate()}" if term else "SIGKILL"
        if not term:
            server.kill()
        bugs += server.bugs()
        server.start()
        yield f"{how}, away for {time.monotonic() - began:.0f} s"
        term = not term


def slope(seconds: list[float], held: list[int]) -> float:
    """Growth an hour of the later half of samples."""
    half = len(seconds) // 2
    return round(float(np.polyfit(seconds[half:], held[half:], 1)[0]) * 3600, 1)


def soak(
    server: ServerProcess, keys: Sequence[str], seconds: float, pause: float
) -> dict[str, Any]:
    """The whole run on a server that has been started."""
    tally, pace, bugs = Tally(), Pace(pause), list[str]()
    clients = [AcpcClient(server.address, token=key) for key in keys]
    key = (("authorization", f"Bearer {keys[0]}"),)
    threads = [threading.Thread(target=hostile, args=(server.address, key, tally, pace))]
    for seed, client in enumerate(clients):
        for kind, call in Work(client, seed + 1).kinds().items():
            threads.append(
                threading.Thread(target=repeat, args=(client, kind, call, tally, pace), daemon=True)
            )
    started = time.monotonic()
    for thread in threads:
        thread.start()
    sampled, samples = list[float](), list[dict[str, int]]()
    try:
        restarts = list(lives(server, seconds, bugs))
        while (now := time.monotonic() - started) < seconds:
            sampled.append(now)
            samples.append(holdings(server.pid))
            time.sleep(SAMPLE_SECONDS)
    finally:  # a server that does not come back ends the callers, too
        pace.over.set()
    for thread in threads:
        thread.join()
    for client in clients:
        client.close()
    bugs += server.bugs()
    held = {name: [sample[name] for sample in samples] for name in samples[0]}
    grown = {name: slope(sampled, values) for name, values in held.items()}
    flat = all(grown[name] < most for name, most in FLAT_PER_HOUR.items())
    flat |= sampled[-1] - sampled[0] < LONG_ENOUGH_SECONDS
    return {
        "minutes": round((time.monotonic() - started) / 60, 1),
        "restarts": restarts,
        "restart_count": len(restarts),
        "valid_calls": sum(map(len, tally.seconds.values())),
        "failed": len(tally.failed),
        "failures": tally.failed[:50],
        "tried_again": dict(tally.again),
        "latencies": {kind: quantiles(found) for kind, found in sorted(tally.seconds.items())},
        "hostile": dict(tally.hostile),
        "hostile_count": tally.hostile.total(),
        "bugs": bugs,
        "bug_count": len(bugs),
        "first": samples[0],
        "last": samples[-1],
        "held": {name: values[:: max(1, len(values) // 60)] for name, values in held.items()},
        "grown_per_hour": grown,
        "kept": not tally.failed and not bugs and flat,
    }


def report(minutes: float = 60.0, pause: float = 0.05) -> dict[str, Any]:
    """The whole run; a caller pauses for some seconds after each call."""
    with tempfile.TemporaryDirectory() as folder:
        world, file = write_world(Path(folder)), Path(folder) / "keys.json"
        keys = [create_key(file, name, Role.COMPUTE) for name in ("adversary", "victim")]
        with ServerProcess(
            world.checkpoint_root,
            world.dataset_root,
            world.state_dir,
            port=free_port(),
            latent_cache_mib=CACHE_MIB,
            keys_file=file,
        ) as server:
            return soak(server, keys, 60 * minutes, pause)


if __name__ == "__main__":
    run(report)

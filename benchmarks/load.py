"""Load on a running server, from a process of its own, and what its callers saw."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import cache
from multiprocessing import get_context
from typing import Any

import grpc
import numpy as np
from acpc.contract import write_tensor
from acpc.v1 import diagnostic_service_pb2 as pb
from acpc.v1 import diagnostic_service_pb2_grpc as pb_grpc

HISTORY, HORIZON, SIDE, WIDTH = 3, 8, 32, 10
PAIR, POOL = "ComparePair", "CertifyPool"


def quantiles(seconds: list[float]) -> dict[str, float]:
    """Count, p50, p99 and largest, in milliseconds."""
    p50, p99 = (np.quantile(seconds, (0.5, 0.99)) * 1e3).tolist()
    return {"count": len(seconds), "p50_ms": p50, "p99_ms": p99, "max_ms": max(seconds) * 1e3}


def pair_request(checkpoint: str, rng: np.random.Generator, draws: int) -> pb.ComparePairRequest:
    """A pair nobody has asked for before."""
    history = rng.integers(0, 256, (HISTORY, SIDE, SIDE, 3), dtype=np.uint8)
    blocks = rng.standard_normal((HISTORY + HORIZON - 1, WIDTH)).astype(np.float32)
    return pb.ComparePairRequest(
        checkpoint={"name": checkpoint},
        history=write_tensor(history),
        action_blocks=write_tensor(blocks),
        perturbations={"specs": [{"gaussian_noise": {"sigma": 0.08}}], "draws": draws},
    )


def pool_request(checkpoint: str, rng: np.random.Generator, draws: int) -> pb.CertifyPoolRequest:
    """A pool of 64 candidates x 5 steps that nobody has asked for before, from a pair's history."""
    pair = pair_request(checkpoint, rng, draws)
    frame = rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
    past = rng.standard_normal((HISTORY - 1, WIDTH)).astype(np.float32)
    candidates = rng.standard_normal((64, 5, WIDTH)).astype(np.float32)
    return pb.CertifyPoolRequest(
        checkpoint=pair.checkpoint,
        history=pair.history,
        perturbations=pair.perturbations,
        past_blocks=write_tensor(past),
        candidates=write_tensor(candidates),
        goal=pb.Goal(frame=write_tensor(frame)),
        elite_count=8,
    )


def fresh_seed() -> int:
    """A seed whose views no earlier load has asked for."""
    return secrets.randbits(62)


REQUESTS: dict[str, Callable[[str, np.random.Generator, int], Any]] = {
    PAIR: pair_request,
    POOL: pool_request,
}


def closed_loop(
    address: str, checkpoint: str, callers: int, seconds: float, draws: int, method: str = PAIR
) -> list[list[float]]:
    """Callers that ask again as soon as they are answered; latencies of each caller.

    ``method`` is one of :data:`REQUESTS`.
    """
    made = REQUESTS[method]

    def caller(index: int) -> list[float]:
        rng = np.random.default_rng(index)
        requests = [made(checkpoint, rng, draws) for _ in range(64)]
        found, position, seed = [], 0, fresh_seed()
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            request = requests[position % len(requests)]
            request.perturbations.seed = seed + position  # new views: no latent is cached
            position += 1
            started = time.perf_counter()
            ask(request, timeout=600)
            found.append(time.perf_counter() - started)
        return found

    with grpc.insecure_channel(address) as channel, ThreadPoolExecutor(callers) as pool:
        stub = pb_grpc.DiagnosticServiceStub(channel)
        ask = stub.CertifyPool if method == POOL else stub.ComparePair
        return list(pool.map(caller, range(callers)))


def open_loop(
    address: str, checkpoint: str, rate: float, seconds: float, deadline: float, draws: int
) -> dict[str, list[float]]:
    """Requests at a fixed rate whatever the answers; latencies in seconds by status code."""
    seen: dict[str, list[float]] = {}
    lock, left = threading.Lock(), threading.Semaphore(0)
    rng = np.random.default_rng(1)
    requests = [pair_request(checkpoint, rng, draws) for _ in range(64)]
    total, seed = int(rate * seconds), fresh_seed()

    def answered(started: float) -> Callable[[grpc.Future], None]:
        def done(future: grpc.Future) -> None:
            elapsed = time.perf_counter() - started
            with lock:
                seen.setdefault(future.code().name, []).append(elapsed)
            left.release()

        return done

    with grpc.insecure_channel(address) as channel:
        stub = pb_grpc.DiagnosticServiceStub(channel)
        begin = time.perf_counter()
        for index in range(total):
            pause = begin + index / rate - time.perf_counter()
            if pause > 0:
                time.sleep(pause)
            request = requests[index % len(requests)]
            request.perturbations.seed = seed + index
            started = time.perf_counter()
            future = stub.ComparePair.future(request, timeout=deadline)
            future.add_done_callback(answered(started))
        for _ in range(total):
            left.acquire()
    return seen


def elsewhere(function: Callable[..., object], *arguments: object) -> object:
    """The result of a load function run in a fresh process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


@cache
def loader() -> ProcessPoolExecutor:
    """One process for many loads, warm after its first; it ends with this one."""
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"))

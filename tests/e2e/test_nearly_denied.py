"""Law: a certificate depends on the request alone, also where its margin is of the last bits."""

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import planning_wire
import pytest
import wire
from acpc.contract import GaussianNoise, PoolCertificate, Timing
from acpc_client.sync.client import AcpcClient
from served_world import ServedWorld
from waiting import GENEROUS_SECONDS

HISTORY, BLOCKS, NOISE = wire.frames(3), wire.blocks(), GaussianNoise(0.08)
POOL, GOAL, PAST = planning_wire.pool(16), wire.frames(1, seed=8)[0], wire.blocks(2)
TIMES, CALLERS, BISECTIONS = 200, 4, 44


def certify(client: AcpcClient, tolerance: float) -> PoolCertificate:
    """The answer without what differs by call."""
    found = client.certify_pool(
        "lewm", HISTORY, POOL, GOAL, past_blocks=PAST, perturbations=GaussianNoise(0.002),
        draws=2, seed=3, elite_count=3, endpoint_tolerance=tolerance,
    )  # fmt: skip
    return replace(found, request_id="", timing=Timing())


def nearly_denied(client: AcpcClient) -> float:
    """The largest tolerance at which the pool is certified: one float more denies it."""
    low, high = 0.0, 1.0
    assert certify(client, low).top1_certified_fraction == 1.0
    assert certify(client, high).top1_certified_fraction < 1.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if certify(client, middle).top1_certified_fraction == 1.0:
            low = middle
        else:
            high = middle
    return low


@contextmanager
def busy(address: str) -> Iterator[list[int]]:
    """Callers of pairs and pools that nobody asked for before; how often each was answered."""
    over, started = threading.Event(), threading.Barrier(CALLERS + 1)
    answered = [0] * CALLERS

    def call(caller: int) -> None:
        with AcpcClient(address) as client:
            for count in itertools.count():
                history = wire.frames(3, seed=1000 * (caller + 1) + count)
                if caller % 2:
                    client.compare_pair("lewm", history, BLOCKS, perturbations=NOISE, draws=3)
                else:
                    pool = planning_wire.pool(8 + count % 3, seed=count)
                    views = {"perturbations": NOISE, "past_blocks": PAST}
                    client.certify_pool("lewm", history, pool, GOAL, **views)
                answered[caller] += 1
                if count == 0:
                    started.wait(GENEROUS_SECONDS)
                if over.is_set():
                    return

    threads = [threading.Thread(target=call, args=(caller,)) for caller in range(CALLERS)]
    for thread in threads:
        thread.start()
    try:
        started.wait(GENEROUS_SECONDS)
        yield answered
    finally:
        over.set()
        for thread in threads:
            thread.join(GENEROUS_SECONDS)


@pytest.mark.slow
def test_a_nearly_denied_certificate_is_the_same_beside_other_callers(
    world: ServedWorld, tmp_path: Path
) -> None:
    """Its margin is of the last bits: whatever moved a number would deny it at times."""
    with (
        world.server(tmp_path / "state", latent_cache_mib=0) as server,
        AcpcClient(server.address) as client,
    ):
        tolerance = nearly_denied(client)
        quiet = certify(client, tolerance)
        with busy(server.address) as answered:
            before = [*answered]
            found = [certify(client, tolerance) for _ in range(TIMES)]
        assert all(now > then for now, then in zip(answered, before, strict=True))
        assert all(answer == quiet for answer in found)
        assert server.bugs() == []
    margins = [view.top1.margin for view in quiet.views]
    assert 0 < min(margins) < 1e-9 * quiet.clean_costs.min()

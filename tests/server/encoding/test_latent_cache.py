"""Latents that are kept, and work that is prepared ahead."""

import copy
import threading
from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest
import torch
from acpc.contract import (
    CheckpointRef,
    GaussianBlur,
    GaussianNoise,
    Identity,
    NumericMode,
    PairRequest,
    PerturbationSet,
)
from acpc_server.encoding import HistoryEncoder
from acpc_server.encoding.anchors import prepared_ahead
from acpc_server.engine import DeviceClient
from acpc_server.engine.caches import ENTRY_BYTES, LatentCache
from acpc_server.observe import Metrics
from planning_world import CPU, DIM, PlanningWorld, context, noise
from waiting import GENEROUS_SECONDS

FP32 = NumericMode.FP32
RNG = np.random.default_rng(0)
FRAMES = RNG.integers(0, 256, (4, 28, 28, 3), dtype=np.uint8)
BLOCKS = RNG.standard_normal((5, 10)).astype(np.float32)


def compare(
    world: PlanningWorld, history: np.ndarray, *, model: int = 0, seed: int = 0
) -> list[float]:
    specs = (Identity(), GaussianNoise(sigma=0.1), GaussianBlur(kernel_size=3))
    views = PerturbationSet(specs, 1, seed, 0)
    request = PairRequest(
        checkpoint=CheckpointRef("m0"), history=history, action_blocks=BLOCKS, views=views
    )
    return [result.acpc for result in world.compare(request, model=model).results]


def hits(world: PlanningWorld) -> float:
    return world.engine.metrics.latent_lookups.labels("hit")._value.get()


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlanningWorld]:
    world = PlanningWorld(tmp_path_factory.mktemp("checkpoints"))
    yield world
    world.engine.close()


@pytest.fixture
def kept(plain: PlanningWorld) -> Iterator[PlanningWorld]:
    world = copy.copy(plain)
    world.engine = DeviceClient(CPU, Metrics(), latent_bytes=2**20)
    yield world
    world.engine.close()


def test_kept_latents_hold_no_batch_and_count_once(kept: PlanningWorld) -> None:
    encoder, model, mode = HistoryEncoder(kept.engine, 100), kept.checkpoint().model, FP32
    histories = FRAMES[:3], FRAMES[1:]
    asked = [encoder.sources(model, frames, noise(0.1), None, mode) for frames in histories]
    encoder.encode(model, asked, context(), mode)
    first, second = (kept.engine.latents.get(f":{sources.key}") for sources in asked)
    assert first is not None and second is not None
    assert first.untyped_storage().nbytes() == first.nbytes == 9 * DIM * 4
    cache = LatentCache(2 * (first.nbytes + ENTRY_BYTES), Metrics())
    for key, latents in (("a", first), ("a", first), ("b", second)):
        cache.put(key, latents)
    assert cache.get("a") is first, "still here"


def test_a_request_that_comes_again_is_not_encoded_again(
    kept: PlanningWorld, plain: PlanningWorld
) -> None:
    before = compare(kept, FRAMES[:3])
    assert hits(kept) == 0
    assert compare(kept, FRAMES[:3]) == before
    assert hits(kept) == 1
    assert before[0] == 0.0, "an unchanged view"
    np.testing.assert_allclose(compare(plain, FRAMES[:3]), before, rtol=1e-5, atol=5e-6)
    compare(plain, FRAMES[:3])
    assert hits(plain) == 0


@pytest.mark.parametrize("changed", [{"model": 3}, {"seed": 1}, {}], ids=["model", "seed", "pixel"])
def test_what_can_change_a_latent_is_part_of_its_key(
    kept: PlanningWorld, plain: PlanningWorld, changed: dict[str, int]
) -> None:
    compare(kept, FRAMES[:3])
    history = FRAMES[:3].copy()
    history[0, 0, 0, 0] ^= not changed
    found = compare(kept, history, **changed)
    np.testing.assert_allclose(found, compare(plain, history, **changed), rtol=1e-5, atol=5e-6)
    assert found != compare(kept, FRAMES[:3])


def test_the_least_recently_used_make_room() -> None:
    row = torch.zeros(1, 4)  # 16 bytes, and what the entry takes
    cache = LatentCache(2 * (16 + ENTRY_BYTES), Metrics())
    cache.put("a", row)
    cache.put("b", row)
    assert cache.get("a") is row
    cache.put("c", row)
    assert cache.get("b") is None
    assert cache.get("a") is row
    cache.put("d", torch.zeros(1000, 4))  # larger than the budget
    assert cache.get("d") is None
    assert cache.get("c") is row


def test_one_is_prepared_while_another_is_in_use_and_no_more() -> None:
    begun = [threading.Event() for _ in range(3)]

    def prepare(item: int) -> int:
        begun[item].set()
        return item

    with closing(prepared_ahead(prepare, range(3))) as results:
        assert next(results) == 0
        assert begun[1].wait(GENEROUS_SECONDS), "the second begins before it is asked for"
        assert not begun[2].is_set(), "nothing begins the third"
        assert next(results) == 1
        assert begun[2].wait(GENEROUS_SECONDS)
        assert next(results) == 2


def test_whoever_leaves_early_leaves_no_thread() -> None:
    made: list[threading.Thread] = []

    def prepare(item: int) -> int:
        made.append(threading.current_thread())
        return item

    def leave_early() -> None:
        with closing(prepared_ahead(prepare, range(3))) as results:
            raise KeyError(next(results))

    with pytest.raises(KeyError) as kept:  # and with it the frame that it was raised in
        leave_early()
    assert kept.value.args == (0,)
    assert made
    assert made[0] is not threading.main_thread()
    assert not any(thread.is_alive() for thread in made)

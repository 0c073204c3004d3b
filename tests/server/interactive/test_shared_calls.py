"""Pairs that share a device call are answered as they are alone, and fail alone."""

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from acpc.contract import (
    GaussianBlur,
    GaussianNoise,
    Identity,
    NumericMode,
    PairComparison,
    PairRequest,
    PerturbationSet,
    PlanStart,
    PoolCertificate,
    RandomShift,
    Registered,
    Resize,
)
from acpc_server.engine import CheckpointCache, DeviceClient
from acpc_server.errors import AcpcError, Cancelled, FailedPrecondition, InvalidArgument
from acpc_server.interactive import PairComparer
from acpc_server.models import DEFAULT_LIMITS, FrozenJepa, FrozenNetwork
from acpc_server.observe import Metrics
from acpc_server.perturb import perturbation
from acpc_server.scheduling import Admission, Priority, RequestContext
from planning_world import (
    CPU,
    SEEDS,
    SIDE,
    WIDTH,
    PlanningWorld,
    certify_pool,
    context,
    drawn,
    moment,
    pair,
    pool,
)
from public_checkpoint import public_config, write_checkpoint
from pydantic import BaseModel
from shared_call import calls, together


class Nothing(BaseModel):
    """No parameters."""


@perturbation("test_broken", parameters=Nothing, stochastic=True)
def broken(frames: torch.Tensor, parameters: Nothing, key: object) -> torch.Tensor:
    raise ZeroDivisionError("a fault of the plug-in")


def answers(
    world: PlanningWorld,
    *requests: PairRequest,
    cancelled: int | None = None,
    device_calls: int = 1,
) -> list[Future[PairComparison]]:
    before = calls(world.engine, "pair")
    asks = [partial(world.compare, request) for request in requests]
    found = together(world.engine, asks, cancelled)
    assert calls(world.engine, "pair") == before + device_calls
    return found


def numbers(answer: PairComparison) -> list[float]:
    found: list[float] = []
    for result in answer.results:
        found += [result.acpc, result.acpc_one_step, *result.step_distances, result.encoder_shift]
        if (drift := result.error_drift) is not None:
            found += [drift.clean_error, drift.perturbed_error, drift.drift, drift.bound]
    return found


def test_a_pair_that_fails_leaves_the_others_their_call(world: PlanningWorld) -> None:
    requests = [
        pair(0),
        pair(1, GaussianBlur(kernel_size=99)),
        pair(2, scale=1e30),
        pair(3),
        pair(4),
    ]
    good, blurred, wild, gone, last = answers(world, *requests, cancelled=3)
    with pytest.raises(InvalidArgument) as refused:
        blurred.result(0)
    assert refused.value.field == "perturbations.specs[0].gaussian_blur.kernel_size"
    with pytest.raises(FailedPrecondition) as not_finite:
        wild.result(0)
    assert not_finite.value.reason == "PREDICTION_NOT_FINITE"
    with pytest.raises(Cancelled):
        gone.result(0)
    for request, answer in ((requests[0], good), (requests[4], last)):
        apart = numbers(world.compare(request))
        np.testing.assert_allclose(numbers(answer.result(0)), apart, rtol=1e-4, atol=5e-6)


def test_a_plug_in_with_a_fault_fails_its_own_caller(world: PlanningWorld) -> None:
    requests = [pair(0), pair(1, Registered(name="test_broken")), pair(2)]
    good, bad, last = answers(world, *requests, device_calls=2)
    with pytest.raises(ZeroDivisionError):
        bad.result(0)
    assert numbers(good.result(0)) == numbers(world.compare(requests[0]))
    assert numbers(last.result(0)) == numbers(world.compare(requests[2]))


# Two do not fit small frames.
KINDS = (
    GaussianNoise(sigma=0.1), GaussianNoise(sigma=0.0), GaussianBlur(kernel_size=5),
    GaussianBlur(kernel_size=59), RandomShift(pixels=29), Resize(scale=0.5), Identity(),
)  # fmt: skip


def mixed(rng: np.random.Generator) -> PairRequest:
    side, steps = (40, 1) if rng.random() < 0.2 else (SIDE, 3)
    pixels = rng.integers(0, 256, (6, side, side, 3), dtype=np.uint8)
    if rng.random() < 0.3:  # seen by others too
        pixels[:] = 7
    specs = tuple(KINDS[place] for place in rng.integers(len(KINDS), size=rng.integers(1, 4)))
    own = np.stack([pixels[:steps], 255 - pixels[:steps]])
    blocks = rng.standard_normal((steps + 2, WIDTH)).astype(np.float32)
    return pair(
        history=pixels[:steps],
        action_blocks=1e30 * blocks if rng.random() < 0.1 else blocks,
        views=own if rng.random() < 0.2 else PerturbationSet(specs, 2, int(rng.integers(2)), 0),
        observed_future=pixels[3:] if rng.random() < 0.2 else None,
    )


def mixed_pool(rng: np.random.Generator) -> tuple[PlanStart, np.ndarray]:
    """A pool of some shape under views of any kinds, of frames and draws that others may have."""
    kinds = rng.choice(len(KINDS), size=rng.integers(1, 4), p=(0.3, 0.2, 0.2, 0.05, 0.05, 0, 0.2))
    views = drawn(*(KINDS[place] for place in kinds), draws=2, seed=int(rng.integers(2)))
    seed = int(rng.integers(3))
    candidates = pool(seed, horizon=3 if rng.random() < 0.8 else 2)
    if rng.random() < 0.1:
        candidates[0] = 1e30
    return moment(seed, views=views, elite_count=int(rng.integers(3, 5))), candidates


def outcome(answer: Callable[[], PairComparison]) -> tuple[str, list[float]]:
    try:
        found = answer()
    except AcpcError as error:
        return repr(error), []
    views = [(result.spec_index, result.draw) for result in found.results]
    return f"{found.receipt} {views}", numbers(found)


def certificate(answer: Callable[[], PoolCertificate]) -> object:
    try:
        return answer()
    except AcpcError as error:
        return repr(error)


SEEDS_TRIED = [0, 1, *(pytest.param(n, marks=pytest.mark.nightly) for n in range(2, 12))]


@pytest.mark.parametrize("seed", SEEDS_TRIED)
def test_whatever_waits_together_is_answered_as_it_is_alone(
    world: PlanningWorld, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    asks = [partial(world.compare, mixed(rng)) for _ in range(14)]
    before = calls(world.engine, "pair")
    found = together(world.engine, asks)
    assert calls(world.engine, "pair") - before < len(asks) / 2
    for ask, answer in zip(asks, found, strict=True):
        told, ours = outcome(answer.result)
        words, wanted = outcome(ask)
        assert told == words
        np.testing.assert_allclose(ours, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", SEEDS_TRIED[1:])
def test_pools_that_wait_together_share_no_device_call_and_have_the_bits_they_have_alone(
    world: PlanningWorld, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    asked = [mixed_pool(rng) for _ in range(14)]
    asks = [partial(certify_pool, world.prepare(request), own) for request, own in asked]
    found = together(world.engine, asks)
    for answer, (request, own) in zip(found, asked, strict=True):
        again = partial(certify_pool, world.prepare(request), own, context())
        assert certificate(answer.result) == certificate(again)


def test_a_pair_larger_than_a_call_is_answered_in_pieces(
    world: PlanningWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = pair(6, GaussianNoise(sigma=0.1), GaussianBlur(kernel_size=3), future=True)
    whole = world.compare(request)
    before = calls(world.engine, "pair")
    monkeypatch.setattr("acpc_server.encoding.histories.frames_per_call", lambda *_: 4)
    cut = world.compare(request)
    np.testing.assert_allclose(numbers(cut), numbers(whole), rtol=1e-4, atol=5e-6)
    assert calls(world.engine, "pair") == before, "it has shared none"


def test_reduced_weights_are_cast_in_no_device_call(
    world: PlanningWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    prepare = FrozenNetwork.in_bfloat16

    def noted(self: FrozenJepa) -> FrozenJepa:
        if not self.reduced_bytes:
            threads.append(threading.current_thread().name)
        return prepare(self)

    jobs = world.checkpoint(SEEDS[0])
    mode, job = NumericMode.BF16, RequestContext(Priority.JOB)
    first, other = (
        type(jobs.model)(jobs.model.network, jobs.model.card, jobs.model.device) for _ in range(2)
    )
    world.engine.encode(first, torch.zeros(1, 3, SIDE, SIDE), job, mode)  # the mode is tried
    monkeypatch.setattr(FrozenNetwork, "in_bfloat16", noted)
    world.engine.encode(jobs.model, torch.zeros(1, 3, SIDE, SIDE), job, mode)
    # A job whose latents are known begins with a rollout.
    width = other.card.action_block_dim
    world.engine.rollout(
        other, torch.zeros(1, 1, other.card.latent_dim), torch.zeros(1, 2, width), job, mode
    )
    world.compare(pair(numeric_mode=mode), model=SEEDS[1])
    world.prepare(moment(numeric_mode=mode), model=SEEDS[2])
    assert threads == [threading.current_thread().name] * 4


def test_a_pair_is_held_back_for_others_as_its_checkpoint_says(tmp_path: Path) -> None:
    """While another is under way: for a fifth of its seconds, as none joins; for none, shorter."""
    admission, metrics, took = Admission(), Metrics(), dict[float, float]()
    engine = DeviceClient(CPU, metrics, admission=admission)
    cache = CheckpointCache(tmp_path, CPU, metrics, limits=DEFAULT_LIMITS, budget_bytes=2**30)
    comparer = PairComparer(engine, max_frames=1000)
    folder = write_checkpoint(tmp_path / "m0", public_config("shallow"))
    comparer.compare(cache.get("m0"), pair(), context())  # the first prepares
    with admission.request("Plan", context()), admission.request("Plan", context()):
        for seconds in (1.0, 0.0):
            serving = {"batch_delay_seconds": seconds}
            (folder / "acpc.json").write_text(json.dumps({"serving": serving}))
            loaded, tries = cache.get("m0"), list[float]()
            for seed in range(5):
                begun = time.perf_counter()
                comparer.compare(loaded, pair(seed), context())
                tries.append(time.perf_counter() - begun)
            took[seconds] = min(tries)
    engine.close()
    assert took[1.0] >= 0.2 and took[1.0] > took[0.0]

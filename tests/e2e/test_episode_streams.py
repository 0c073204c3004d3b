"""An episode on one stream answers as one with a stream a step, and outlives its stream."""

# ruff: noqa: ANN401 - either client, and what it is asked

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import torch
import wire
from acpc.contract import GaussianBlur, GaussianNoise
from acpc_client import AcpcClient, AsyncAcpcClient
from acpc_client.errors import InvalidArgument
from acpc_client.planning import AsyncPolicy, ControlStep, Decision, Policy
from acpc_lab.integrations import CemCertificates
from public_library import public_solver
from served_world import write_world
from server_process import ServerProcess
from waiting import GENEROUS_SECONDS, wait_until

FRAMES = wire.frames(6)
GOALS = wire.frames(2, seed=5)
PAST = wire.blocks(6)
POOL = wire.blocks(24 * 3, seed=11).reshape(24, 3, -1)
STEPS = 4
RULE: dict[str, Any] = {
    "remedies": (Decision.SHRINK, Decision.REPLAN),
    "attempts": 3,
    "budget_ms": 1000 * GENEROUS_SECONDS,
}


@pytest.fixture
def server(tmp_path: Any) -> Iterator[ServerProcess]:
    with write_world(tmp_path).server() as process:
        yield process
        assert process.bugs() == []


def asked(client: Any, step: int) -> tuple[Any, Any, Any]:
    """A control step of an episode whose goal changes; from the third on blur is certified."""

    def look(frame: Any, **options: Any) -> Any:
        change = GaussianNoise(0.02) if step < 2 else GaussianBlur(3)
        given = {"perturbations": change, "draws": 2, "past_blocks": PAST[step : step + 1]}
        return client.plan("lewm", frame, GOALS[step % 2], **{**given, **options})

    return lambda: FRAMES[step : step + 2], look, iter_pool


def iter_pool() -> Any:
    """One plan of one pool."""
    yield POOL


def told(step: ControlStep) -> dict[str, Any]:
    """What a step decided, without times and ids."""
    assert step.error is None
    return {
        "decision": step.decision,
        "attempts": [(a.remedy, a.certified, a.candidates) for a in step.attempts],
        "plan": None if step.plan is None else step.plan.tolist(),
        "winner": step.certificate.clean_winner,
        "receipt": asdict(step.certificate.receipt),
    }


def test_an_episode_of_either_policy_answers_as_steps_alone(server: ServerProcess) -> None:
    with AcpcClient(server.address) as client:
        alone = [told(Policy(**RULE).step(*asked(client, step))) for step in range(STEPS)]
        opened = count_opened(client)
        with Policy(**RULE) as policy:
            kept = [told(policy.step(*asked(client, step))) for step in range(STEPS)]
        assert kept == alone
        assert opened() == 2  # noise, then blur

    async def ask() -> list[dict[str, Any]]:
        async with AsyncAcpcClient(server.address) as client, AsyncPolicy(**RULE) as policy:
            return [told(await policy.step(*asked(client, step))) for step in range(STEPS)]

    assert asyncio.run(ask()) == alone


def count_opened(client: AcpcClient) -> Callable[[], int]:
    """How many streams the client has opened since."""
    count, rpc = [0], client._transport.rpc

    def counted(method: Any) -> Any:
        count[0] += method.name == "Plan"
        return rpc(method)

    client._transport.rpc = counted
    return lambda: count[0]


def test_an_episode_outlives_its_server(server: ServerProcess) -> None:
    with AcpcClient(server.address) as client, Policy(**RULE) as policy:
        first = told(policy.step(*asked(client, 0)))
        server.kill()
        server.restart()
        # A channel that lost its server waits before it connects again; such steps brake.
        wait_until(lambda: policy.step(*asked(client, 0)).error is None)
        again = told(policy.step(*asked(client, 0)))
        assert again == first
        assert told(policy.step(*asked(client, 1)))["winner"] >= 0


def test_solves_of_an_episode_keep_their_streams(server: ServerProcess) -> None:
    with AcpcClient(server.address) as client:
        frames = iter(FRAMES[[0, 1, 0, 1]])

        def opened(env: int) -> Any:
            change = GaussianNoise(0.02)
            return client.plan("lewm", next(frames)[None], GOALS[env], perturbations=change)

        def solved(hook: CemCertificates) -> Any:
            sizes = {"num_samples": 6, "topk": 2, "n_steps": 2}
            solver = public_solver(
                lambda _, pool: torch.zeros(pool.shape[:2]), shape=POOL.shape[1:], **sizes
            )
            hook.attach(solver).solve({"pixels": torch.zeros(1, 1)})
            return [item.certificate.clean_costs for item in hook.iterations[0]]

        torch.manual_seed(0)
        alone = CemCertificates(opened, select="top1")
        wanted = [solved(alone), solved(alone)]
        torch.manual_seed(0)
        count = count_opened(client)
        with CemCertificates(opened, select="top1") as hook:
            found = [solved(hook), solved(hook)]
        assert count() == 1
        np.testing.assert_allclose(np.ravel(found), np.ravel(wanted), rtol=1e-5)


def test_a_moment_that_is_wrong_is_told_as_by_a_stream_of_its_own(server: ServerProcess) -> None:
    with AcpcClient(server.address) as client, Policy(**RULE) as policy:
        policy.step(*asked(client, 0))
        observe, _, pools = asked(client, 1)
        bare = {"perturbations": GaussianNoise(0.02), "draws": 2}
        wrong = policy.step(
            observe,
            lambda frame, **more: client.plan("lewm", frame, GOALS[0], **bare, **more),
            pools,
        )
        assert isinstance(wrong.error, InvalidArgument)
        assert "start.past_blocks" in str(wrong.error)
        assert told(policy.step(*asked(client, 1)))["winner"] >= 0

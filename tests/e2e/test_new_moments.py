"""A planning session that begins new moments answers as new sessions do, one at each of them."""

import asyncio
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import wire
from acpc.contract import CemBudget, GaussianBlur, GaussianNoise
from acpc_client import AcpcClient, AsyncAcpcClient, PoolCertificate, Receipt
from acpc_client.errors import InvalidArgument, SessionClosed
from served_world import write_world
from server_process import ServerProcess

FRAMES = wire.frames(5)
PAST = wire.blocks(4)
POOL = wire.blocks(24 * 3, seed=11).reshape(24, 3, -1)
QUESTION: dict[str, Any] = {
    "perturbations": [GaussianNoise(0.0005), GaussianNoise(0.02)],
    "draws": 3,
    "seed": 7,
    "anchor": 3,
    "elite_count": 5,
}
# What each moment is asked with; the last has another elite count and other views.
MOMENTS: list[dict[str, Any]] = [
    {"history": FRAMES[:1], "goal": FRAMES[4], **QUESTION},
    {"history": FRAMES[1:3], "goal": FRAMES[4], "past_blocks": PAST[1:2], **QUESTION},
    {"history": FRAMES[3:4], "goal": FRAMES[0], "perturbations": GaussianBlur(3), "elite_count": 2},
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with write_world(tmp_path_factory.mktemp("moments")).server(latent_cache_mib=0) as process:
        yield process
        assert process.bugs() == []


def fresh(client: AcpcClient, moment: dict[str, Any]) -> tuple[Receipt, PoolCertificate]:
    with client.plan("lewm", **moment) as session:
        return session.receipt, session.certify(POOL)


def check_same(found: PoolCertificate, wanted: PoolCertificate) -> None:
    """The same decisions, and numbers up to the order in which rows of a batch are summed."""
    assert found.clean_elites == wanted.clean_elites
    np.testing.assert_allclose(found.clean_costs, wanted.clean_costs, rtol=1e-5)
    for one, other in zip(found.views, wanted.views, strict=True):
        assert one.perturbed_winner == other.perturbed_winner
        # Of small distances between latents, whose last bits weigh more here than in costs.
        np.testing.assert_allclose(one.bounds, other.bounds, rtol=1e-3, atol=2e-4)
    assert asdict(found.receipt) == asdict(wanted.receipt)


def test_both_clients_begin_moments_that_answer_as_new_sessions(server: ServerProcess) -> None:
    with AcpcClient(server.address) as client:
        wanted = [fresh(client, moment) for moment in MOMENTS]
        with client.plan("lewm", **MOMENTS[0]) as session:
            for moment, (receipt, certificate) in zip(MOMENTS, wanted, strict=True):
                assert asdict(session.restart("lewm", **moment)) == asdict(receipt)
                assert asdict(session.receipt) == asdict(receipt)
                assert session.elite_count == moment["elite_count"]
                found = session.certify(POOL)
                check_same(found, certificate)
                assert found.request_id == session.request_id

    async def ask() -> list[PoolCertificate]:
        answers = []
        async with (
            AsyncAcpcClient(server.address) as client,
            client.plan("lewm", **MOMENTS[0]) as session,
        ):
            for moment in MOMENTS:
                await session.restart("lewm", **moment)
                answers.append(await session.certify(POOL))
        return answers

    for found, (_, certificate) in zip(asyncio.run(ask()), wanted, strict=True):
        check_same(found, certificate)


def test_a_moment_that_is_wrong_ends_the_session_and_names_its_field(
    server: ServerProcess,
) -> None:
    with (
        AcpcClient(server.address) as client,
        client.plan("lewm", **MOMENTS[0]) as session,
    ):
        with pytest.raises(InvalidArgument) as raised:
            session.restart("lewm", FRAMES[:2], FRAMES[4], **QUESTION)
        fields = [violation.field for violation in raised.value.violations]
        assert fields == ["start.past_blocks.shape"]
        with pytest.raises(SessionClosed):
            session.certify(POOL)


def test_draws_bound_how_many_may_change_a_choice(server: ServerProcess) -> None:
    """One bound a random perturbation, of this pool's or plan's draws; none without chance."""
    views = {**QUESTION, "perturbations": [GaussianBlur(3), GaussianNoise(0.0005)], "draws": 20}
    with AcpcClient(server.address) as client:
        answer = client.certify_pool("lewm", FRAMES[:1], POOL, FRAMES[4], **views)
        for choice in ("top1", "elite"):
            (bound,) = getattr(answer, f"{choice}_may_change")
            drawn = [getattr(view, choice).certified for view in answer.views[20:]]
            assert (bound.spec_index, bound.draws) == (1, 20)
            assert bound.uncertified == drawn.count(False)
            assert bound.uncertified / 20 < bound.share <= 1
            assert "of 20 not certified" in str(bound)
        own = {"views": FRAMES[None, 1:2], "elite_count": 5}
        given = client.certify_pool("lewm", FRAMES[:1], POOL, FRAMES[4], **own)
        assert (given.top1_may_change, given.elite_may_change) == ((), ())
        top1 = client.certify_pool(
            "lewm", FRAMES[:1], POOL, FRAMES[4], **views | {"elite_count": 0}
        )
        assert (len(top1.top1_may_change), top1.elite_may_change) == (1, ())
        budget = CemBudget(candidates=8, elites=2, iterations=2, horizon=3)
        del views["elite_count"]
        plans = client.plan_paired("lewm", FRAMES[:1], FRAMES[4], budget, **views)
    (bound,) = plans.plan_may_change
    assert bound.uncertified == [view.certified for view in plans.views[20:]].count(False)

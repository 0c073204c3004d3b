"""Pools, plans and sessions of both clients, and what their answers promise together."""

import asyncio
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import wire
from acpc.contract import (
    ApplyTo,
    ArgumentError,
    GaussianBlur,
    GaussianNoise,
    Perturbation,
)
from acpc_client import AcpcClient, AsyncAcpcClient, CemBudget, PoolCertificate, Receipt
from acpc_client.errors import InvalidArgument, SessionClosed
from server_process import ServerProcess

SEED, ANCHOR, DRAWS, ELITES = 2**64 - 3, 17, 2, 3
SHIFTS: tuple[Perturbation, ...] = (GaussianNoise(0.0005), GaussianNoise(0.05), GaussianBlur(3))
FRAMES = wire.frames(5)
HISTORY, GOAL, PAST = FRAMES[:3], FRAMES[3], wire.blocks(2)
POOL = wire.blocks(24 * 3, seed=11).reshape(24, 3, -1)
VIEWS: dict[str, Any] = {"perturbations": SHIFTS, "draws": DRAWS, "seed": SEED, "anchor": ANCHOR}
QUESTION: dict[str, Any] = {**VIEWS, "past_blocks": PAST}


def test_what_has_no_frame_of_a_goal_is_refused(client: AcpcClient) -> None:
    moved = {**QUESTION, "apply_to": ApplyTo.GOAL}
    with pytest.raises(ArgumentError, match=r"apply_to: found goal, but goal\.latent has no frame"):
        client.certify_pool("lewm", HISTORY, POOL, np.zeros(16, np.float32), **moved)
    own = {"views": HISTORY[None], "past_blocks": PAST, "apply_to": ApplyTo.BOTH}
    with pytest.raises(ArgumentError, match="apply_to: found both, but views of your own"):
        client.certify_pool("lewm", HISTORY, POOL, GOAL, **own)
    with pytest.raises(TypeError, match="unexpected option 'apply_to'"):
        client.compare_pair("lewm", HISTORY, wire.blocks(), apply_to=ApplyTo.GOAL)


# What each moment of a session is asked with; the last has another elite count and other views.
MOMENTS: list[dict[str, Any]] = [
    {"history": FRAMES[:1], "goal": FRAMES[4], "elite_count": ELITES, **VIEWS},
    {"history": HISTORY, "goal": GOAL, "elite_count": ELITES, "apply_to": ApplyTo.BOTH, **QUESTION},
    {"history": FRAMES[3:4], "goal": FRAMES[0], "perturbations": GaussianBlur(3), "elite_count": 2},
]


def fresh(client: AcpcClient, moment: dict[str, Any]) -> tuple[Receipt, PoolCertificate]:
    with client.plan("lewm", **moment) as session:
        return session.receipt, session.certify(POOL)


def check_same(found: PoolCertificate, wanted: PoolCertificate) -> None:
    assert found.clean_elites == wanted.clean_elites
    np.testing.assert_allclose(found.clean_costs, wanted.clean_costs, rtol=1e-5)
    for one, other in zip(found.views, wanted.views, strict=True):
        assert one.perturbed_winner == other.perturbed_winner
        # Of small distances between latents, whose last bits weigh more here than in costs.
        np.testing.assert_allclose(one.bounds, other.bounds, rtol=1e-3, atol=2e-4)
    assert asdict(found.receipt) == asdict(wanted.receipt)


def test_both_clients_begin_moments_that_answer_as_new_sessions(
    client: AcpcClient, server: ServerProcess
) -> None:
    wanted = [fresh(client, moment) for moment in MOMENTS]
    check_same(wanted[1][1], client.certify_pool("lewm", candidates=POOL, **MOMENTS[1]))
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
            AsyncAcpcClient(server.address) as other,
            other.plan("lewm", **MOMENTS[0]) as session,
        ):
            for moment in MOMENTS:
                await session.restart("lewm", **moment)
                answers.append(await session.certify(POOL))
        return answers

    for found, (_, certificate) in zip(asyncio.run(ask()), wanted, strict=True):
        check_same(found, certificate)


def test_a_moment_that_is_wrong_ends_the_session_and_names_its_field(client: AcpcClient) -> None:
    with client.plan("lewm", **MOMENTS[0]) as session:
        with pytest.raises(InvalidArgument) as raised:
            session.restart("lewm", FRAMES[:2], FRAMES[4], **VIEWS)
        assert [v.field for v in raised.value.violations] == ["start.past_blocks.shape"]
        with pytest.raises(SessionClosed):
            session.certify(POOL)


def test_draws_bound_how_many_may_change_a_choice(client: AcpcClient) -> None:
    """One bound a random perturbation, of this pool's or plan's draws; none without chance."""
    views = {**VIEWS, "perturbations": [GaussianBlur(3), GaussianNoise(0.0005)], "draws": 20}
    moment = "lewm", FRAMES[:1], POOL, FRAMES[4]
    answer = client.certify_pool(*moment, elite_count=5, **views)
    for choice in ("top1", "elite"):
        (bound,) = getattr(answer, f"{choice}_may_change")
        drawn = [getattr(view, choice).certified for view in answer.views[-20:]]
        assert (bound.spec_index, bound.draws) == (1, 20)
        assert bound.uncertified == drawn.count(False)
        assert bound.uncertified / 20 < bound.share <= 1
        assert "of 20 not certified" in str(bound)
    given = client.certify_pool(*moment, views=FRAMES[None, 1:2], elite_count=5)
    assert (given.top1_may_change, given.elite_may_change) == ((), ())
    top1 = client.certify_pool(*moment, **views)
    assert (len(top1.top1_may_change), top1.elite_may_change) == (1, ())
    budget = CemBudget(candidates=8, elites=2, iterations=2, horizon=3)
    plans = client.plan_paired("lewm", FRAMES[:1], FRAMES[4], budget, **views)
    (bound,) = plans.plan_may_change
    assert bound.uncertified == [view.certified for view in plans.views[-20:]].count(False)
